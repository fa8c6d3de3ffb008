//! `seal` and `unseal`: business ids and the order numbers that stand for them outside.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read as _};

use keymill::binding::{order_no_bytes, order_no_number, order_no_text, order_no_text8};
use keymill::{Error, OrderNumbers, Result};
use serde_json::{Value, json};

use crate::args::OrderKeys;
use crate::hex;
use crate::print::{self, Reader};

/// The longest line of standard input, its end included.
const LONGEST_LINE: u64 = 256;
/// So many bytes of answers are written at once.
const WRITTEN_AT_ONCE: usize = 1 << 16;

/// An order number of either length.
pub enum OrderNumber {
    Long([u8; 16]),
    Short(u64),
}

impl OrderNumber {
    /// Reads an order number in any of its forms; the length says which it is.
    pub fn read(text: &str) -> Result<OrderNumber> {
        if let Some(digits) = text.strip_prefix("0x") {
            let bytes = hex::bytes(digits).unwrap_or_default();
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

/// The order number of an id, or of each line of standard input.
pub fn seal(id: &str, keys: &OrderKeys, short: bool, json: bool) -> Result<()> {
    let numbers = numbers(keys)?;
    each(id, &|id| {
        let (order_no, bytes, text, gene) = sealed(&numbers, id, keys.wide, short)?;
        if !json {
            return Ok(order_no);
        }
        let bytes = bytes.iter().fold("0x".to_owned(), |all, byte| all + &format!("{byte:02x}"));
        Ok(json!({
            "order_no": order_no, "text": text, "bytes": bytes, "gene": gene.to_string(),
            "key_version": numbers.version().to_string(),
        })
        .to_string())
    })
}

/// The order number, its bytes, its text, and its gene.
fn sealed(
    numbers: &OrderNumbers,
    id: &str,
    wide: bool,
    short: bool,
) -> Result<(String, Vec<u8>, String, u64)> {
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
    if short {
        let no = numbers.seal8(narrow()?)?;
        return Ok((no.to_string(), no.to_be_bytes().to_vec(), order_no_text8(no), no >> 47));
    }
    let bytes = if wide { numbers.seal_wide(number)? } else { numbers.seal(narrow()?)? };
    let text = order_no_text(&bytes);
    Ok((text.clone(), bytes.to_vec(), text, u64::from(u16::from_be_bytes([bytes[0], bytes[1]]))))
}

/// The id in an order number, or in each line of standard input.
pub fn unseal(order_no: &str, keys: &OrderKeys, json: bool) -> Result<()> {
    let numbers = numbers(keys)?;
    each(order_no, &|order_no| {
        let id = match OrderNumber::read(order_no)? {
            OrderNumber::Long(bytes) if keys.wide => numbers.unseal_wide(&bytes)?.to_string(),
            OrderNumber::Long(bytes) => numbers.unseal(&bytes)?.to_string(),
            OrderNumber::Short(_) if keys.wide => {
                return Err(Error::argument(
                    "an order number of 8 bytes stands for an id of 64 bits; leave out --wide",
                ));
            }
            OrderNumber::Short(number) => numbers.unseal8(number)?.to_string(),
        };
        Ok(if json { Value::from(id).to_string() } else { id })
    })
}

/// The next line; `None`: there is none. A file that is none of lines is refused before it fills the memory.
fn line_of(input: &mut impl BufRead) -> Result<Option<String>> {
    let mut line = String::new();
    let read = input.by_ref().take(LONGEST_LINE).read_line(&mut line);
    match read.map_err(|e| Error::argument(format!("standard input cannot be read: {e}")))? {
        0 => Ok(None),
        bytes if bytes as u64 == LONGEST_LINE && !line.ends_with('\n') => Err(Error::argument(format!(
            "it has more than {LONGEST_LINE} bytes, and an id or a number has no more than 40"
        ))),
        _ => Ok(Some(line)),
    }
}

/// Prints the answer for a word, or where the word is `-` for each line of standard input, up to the first that is refused.
fn each(word: &str, answer: &dyn Fn(&str) -> Result<String>) -> Result<()> {
    if word != "-" {
        return print::text(&format!("{}\n", answer(word)?));
    }
    let (mut answers, mut refused) = (String::new(), None);
    let mut input = io::stdin().lock();
    for at in 0_u64.. {
        let Some(line) = line_of(&mut input).transpose() else { break };
        match line.and_then(|line| answer(line.trim())) {
            Ok(answered) => _ = writeln!(answers, "{answered}"),
            Err(e) => {
                refused = Some(Error::new(e.code, format!("line {}: {}", at + 1, e.message)));
                break;
            }
        }
        if answers.len() > WRITTEN_AT_ONCE {
            if print::out(answers.as_bytes())? == Reader::Gone {
                return Ok(());
            }
            answers.clear();
        }
    }
    print::text(&answers)?;
    refused.map_or(Ok(()), Err)
}
