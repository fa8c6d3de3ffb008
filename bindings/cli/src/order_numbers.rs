//! `seal` and `unseal`: business ids and the order numbers that stand for them outside.

use keymill::binding::{order_no_bytes, order_no_number, order_no_text, order_no_text8};
use keymill::{Error, OrderNumbers, Result};
use serde_json::Value;

use crate::args::OrderKeys;
use crate::{print, route};

/// An order number of either length.
pub enum OrderNumber {
    Long([u8; 16]),
    Short(u64),
}

impl OrderNumber {
    /// Reads an order number in any of its forms; the length says which it is.
    pub fn read(text: &str) -> Result<OrderNumber> {
        if let Some(digits) = text.strip_prefix("0x") {
            let bytes = route::bytes(digits).unwrap_or_default();
            if let Ok(bytes) = <[u8; 16]>::try_from(&*bytes) {
                return Ok(OrderNumber::Long(bytes));
            }
            let short = <[u8; 8]>::try_from(&*bytes).map_err(|_| wrong(text))?;
            return Ok(OrderNumber::Short(u64::from_be_bytes(short)));
        }
        match text.len() {
            26 => order_no_bytes(text).map(OrderNumber::Long),
            14 => order_no_number(text).map(OrderNumber::Short).map_err(|e| match text.parse::<u64>() {
                Ok(number) => Error::new(
                    e.code,
                    format!("{}; if it is a decimal number, write it as 0x{number:016x}", e.message),
                ),
                Err(_) => e,
            }),
            _ if text.bytes().all(|c| c.is_ascii_digit()) => {
                text.parse().map(OrderNumber::Short).map_err(|_| wrong(text))
            }
            _ => Err(wrong(text)),
        }
    }
}

fn wrong(text: &str) -> Error {
    Error::argument(format!(
        "`{text}` is no order number: 26 or 14 characters, a decimal number below 2^63, or 0x and 32 or 16 hexadecimal digits"
    ))
}

fn numbers(keys: &OrderKeys) -> Result<OrderNumbers> {
    let numbers = match &keys.keys {
        Some(file) => OrderNumbers::open(file, &keys.tenant, &keys.table)?,
        None => OrderNumbers::from_env(&keys.tenant, &keys.table)
            .map_err(|e| Error::new(e.code, format!("no --keys FILE is given, and {}", e.message)))?,
    };
    match keys.key_version {
        // clap lets no more than 255 through.
        Some(version) => numbers.with_version(version as u8),
        None => Ok(numbers),
    }
}

/// The order number of an id.
pub fn seal(id: &str, keys: &OrderKeys, short: bool, json: bool) -> Result<()> {
    let numbers = numbers(keys)?;
    let no_id = || Error::argument(format!("`{id}` is no id: a decimal number"));
    // `parse` allows a sign.
    if !id.bytes().all(|c| c.is_ascii_digit()) {
        return Err(no_id());
    }
    let number: u128 = id.parse().map_err(|_| no_id())?;
    let narrow = || {
        u64::try_from(number).map_err(|_| {
            Error::argument(format!("`{id}` has more than 64 bits; add --wide for ids of 128 bits"))
        })
    };
    let (order_no, bytes, text, gene) = if short {
        let order_no = numbers.seal8(narrow()?)?;
        (order_no.to_string(), order_no.to_be_bytes().to_vec(), order_no_text8(order_no), order_no >> 47)
    } else {
        let bytes = if keys.wide { numbers.seal_wide(number)? } else { numbers.seal(narrow()?)? };
        let text = order_no_text(&bytes);
        (text.clone(), bytes.to_vec(), text, u64::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    if !json {
        return print::text(&format!("{order_no}\n"));
    }
    let bytes = bytes.iter().fold("0x".to_owned(), |all, byte| all + &format!("{byte:02x}"));
    print::fields(
        true,
        &[
            ("order_no", order_no),
            ("text", text),
            ("bytes", bytes),
            ("gene", gene.to_string()),
            ("key_version", numbers.version().to_string()),
        ],
    )
}

/// The id in an order number.
pub fn unseal(order_no: &str, keys: &OrderKeys, json: bool) -> Result<()> {
    let order_no = OrderNumber::read(order_no)?;
    let numbers = numbers(keys)?;
    let id = match order_no {
        OrderNumber::Long(bytes) if keys.wide => numbers.unseal_wide(&bytes)?.to_string(),
        OrderNumber::Long(bytes) => numbers.unseal(&bytes)?.to_string(),
        OrderNumber::Short(_) if keys.wide => {
            return Err(Error::argument(
                "an order number of 8 bytes stands for an id of 64 bits; leave out --wide",
            ));
        }
        OrderNumber::Short(number) => numbers.unseal8(number)?.to_string(),
    };
    if json { print::json(&Value::from(id)) } else { print::text(&format!("{id}\n")) }
}
