//! Parses a source's spec string, `kind:name?option=value&…`.
//!
//! Every option of every kind is in one table, so that the error of an unknown one lists the valid ones and no language can lack
//! one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, Result, shown};
use crate::layout::Layout;
use crate::layout::scatter::Scatter;
use crate::request::bank_spec::{BankSpec, MOST_COUNTERS};
use crate::request::reservation::{Columns, Key, MAX_NUMBER, Scheme, SerialKey};
use crate::serial::SerialPattern;
use crate::spec::{ClockBack, Order, Rules, SnowflakeSpec, Spec, Worker};

use crate::text_form::{IdDigits, TextForm};

use super::Options;
use super::option_reader::{OptionReader, check_identifier};
use super::options::{self, Described};
use super::scheme_options;
use super::worker_option::{self, Chosen};

/// The longest spec string.
const MAX_SPEC: usize = 4096;
/// The default of `max_step`.
const LARGEST_STEP: u64 = 10_000_000;
/// The longest name, in bytes.
const MAX_NAME: usize = 128;

const KINDS: &[(&str, &[&[Described]])] = &[
    ("segment", &[options::SOURCE, options::TEXT, options::SUPPLY, options::SEGMENT]),
    ("snowflake", &[options::SOURCE, options::TEXT, options::SNOWFLAKE]),
    ("serial", &[options::SOURCE, options::SUPPLY, options::SERIAL]),
    ("business", &[options::SOURCE, options::TEXT, options::BUSINESS]),
];

fn kind_names() -> String {
    KINDS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The characters that are percent-encoded inside a name or a value.
const RESERVED: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'&').add(b'=').add(b'/');

/// The spec string that a language's keyword sugar stands for: the parts of a name joined by `/`, and options, each
/// percent-encoded where it must be.
///
/// ```
/// let spec = keymill::spec_string("serial", &["cust/info", "custid"], &[("number", "000000"), ("step", "500")]);
/// assert_eq!(spec, "serial:cust%2Finfo/custid?number=000000&step=500");
/// ```
#[must_use]
pub fn spec_string(kind: &str, name: &[&str], options: &[(&str, &str)]) -> String {
    let mut spec = format!("{kind}:");
    for (i, part) in name.iter().enumerate() {
        let slash = if i > 0 { "/" } else { "" };
        let _ = write!(spec, "{slash}{}", utf8_percent_encode(part, RESERVED));
    }
    for (i, (option, value)) in options.iter().enumerate() {
        let mark = if i > 0 { '&' } else { '?' };
        let _ = write!(spec, "{mark}{option}={}", utf8_percent_encode(value, RESERVED));
    }
    spec
}

/// The parts of a spec string: kind, name (still encoded) and decoded options.
struct Split {
    kind: &'static str,
    known: Vec<&'static str>,
    name: String,
    options: BTreeMap<String, String>,
}

fn decode(text: &str, what: &str) -> Result<String> {
    let bytes = text.as_bytes();
    for (i, _) in text.match_indices('%') {
        let hex = bytes.get(i + 1..i + 3);
        if !hex.is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit)) {
            return Err(Error::config(format!(
                "{what} has a `%` that two hex digits do not follow; write %25 for a percent sign"
            )));
        }
    }
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| Error::config(format!("{what} is not UTF-8 once its %XX are decoded")))?;
    Ok(decoded.into_owned())
}

fn split(spec: &str) -> Result<Split> {
    if spec.len() > MAX_SPEC {
        return Err(Error::config(format!(
            "a source spec of {} bytes is too long; at most {MAX_SPEC}",
            spec.len()
        )));
    }
    let (kind, rest) = spec.split_once(':').ok_or_else(|| {
        Error::config(format!(
            "`{}` names no source; write kind:name, with kind one of {}",
            shown(spec),
            kind_names()
        ))
    })?;
    let Some((kind, groups)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        return Err(Error::config(format!("unknown kind `{}`; valid kinds: {}", shown(kind), kind_names())));
    };
    let known = options::names(groups);
    let (name, query) = rest.split_once('?').map_or((rest, None), |(n, q)| (n, Some(q)));
    if name.contains('&') || name.contains('=') {
        return Err(Error::config(format!(
            "the name `{}` holds `&` or `=`; options follow a `?`, and in a name write %26 and %3D",
            shown(name)
        )));
    }
    let mut options = BTreeMap::new();
    for pair in query.unwrap_or_default().split('&').filter(|p| !p.is_empty()) {
        let (option, value) = pair.split_once('=').ok_or_else(|| {
            Error::config(format!("option `{}` of `{kind}` has no value; write option=value", shown(pair)))
        })?;
        if !known.contains(&option) {
            return Err(unknown_option(kind, option, &known));
        }
        let value = decode(value, &format!("the value of option `{option}`"))?;
        if options.insert(option.to_owned(), value).is_some() {
            return Err(Error::config(format!("option `{option}` is given twice")));
        }
    }
    Ok(Split { kind, known, name: name.to_owned(), options })
}

fn unknown_option(kind: &str, option: &str, known: &[&str]) -> Error {
    if kind == "serial" && options::TEXT.iter().any(|text_option| text_option.name == option) {
        return Error::config(format!(
            "option `{option}` is for ids; the text of a serial is what its `date` and `number` say: write 'ORD'yyyyMMdd for letters in front"
        ));
    }
    Error::config(format!(
        "unknown option `{}` of `{kind}`; valid options: {}",
        shown(option),
        known.join(", ")
    ))
}

/// Checks option names of a kind, as they stand in a TOML file.
pub(crate) fn check_options(kind: &str, options: &Options) -> Result<()> {
    let Some((kind, groups)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        return Err(Error::config(format!("unknown kind `{}`; valid kinds: {}", shown(kind), kind_names())));
    };
    let known = options::names(groups);
    match options.keys().find(|k| !known.contains(&k.as_str())) {
        Some(option) => Err(unknown_option(kind, option, &known)),
        None => Ok(()),
    }
}

pub(crate) fn check_name(name: &str, what: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::config(format!("{what} is empty; names have 1 to {MAX_NAME} bytes")));
    }
    if name.len() > MAX_NAME {
        return Err(Error::config(format!("{what} has {} bytes; names have 1 to {MAX_NAME}", name.len())));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::config(format!("{what} `{}` holds a control character", shown(name))));
    }
    Ok(())
}

/// Reads a spec; `defaults` answers with the options a TOML file gives for this kind, and with those for this source, which come first.
/// `program_zone` is what `zone=local` means in a language that has a zone of its own.
pub(crate) fn parse(
    spec: &str,
    defaults: &dyn Fn(&str, &str) -> [Options; 2],
    sql_store: bool,
    program_zone: Option<&str>,
) -> Result<Spec> {
    let parts = split(spec)?;
    let raw_label = format!("{}:{}", parts.kind, parts.name);
    let [of_kind, of_source] = defaults(parts.kind, &raw_label);
    let mut layers = [of_kind, of_source, parts.options.clone()];
    worker_option::leave_out_unused(&mut layers);
    let given: Options = layers.into_iter().flatten().collect();
    if let Some(option) = given.keys().find(|k| !parts.known.contains(&k.as_str())) {
        return Err(unknown_option(parts.kind, option, &parts.known));
    }
    let read = OptionReader { kind: parts.kind, given: &given };
    let text = spelled(&raw_label, &given);
    let order = read.one_of("order", &[("process", Order::Process), ("thread", Order::Thread)])?;
    let block = read.number("block", 1024, 1, 1 << 20)?;
    let deadline = Duration::from_millis(read.millis("deadline", 3000, 1, 3_600_000)?);
    let form = TextForm::new(read.one_of("text", &IdDigits::ALL)?, &read.text("prefix", ""))?;
    let common = Common { text, order, block, deadline, form };
    match parts.kind {
        "segment" => segment(&parts, &read, common),
        "serial" => serial(&parts, &read, common, sql_store, program_zone),
        "business" => business(&parts, &read, common),
        _ => snowflake(&parts, &read, common),
    }
}

/// A spec string in one spelling.
fn spelled(label: &str, given: &Options) -> String {
    let mut text = label.to_owned();
    for (i, (option, value)) in given.iter().enumerate() {
        let _ = write!(text, "{}{option}={value}", if i == 0 { '?' } else { '&' });
    }
    text
}

/// The options that every kind has.
struct Common {
    text: String,
    order: Order,
    block: u64,
    deadline: Duration,
    form: TextForm,
}

fn rules(read: &OptionReader, default_step: Option<u64>, default_max: u64) -> Result<Rules> {
    rules_from(read, default_step, 800, default_max)
}

fn rules_from(
    read: &OptionReader,
    default_step: Option<u64>,
    default_min: u64,
    default_max: u64,
) -> Result<Rules> {
    let most = 1 << 40;
    let step = match read.given.get("step") {
        Some(_) => Some(read.number("step", 1, 1, most)?),
        None => default_step,
    };
    if read.given.contains_key("step") && read.given.contains_key("min_step") {
        return Err(Error::config(
            "`step` sets the smallest step too, so `min_step` has no effect; give one of them",
        ));
    }
    let min_step = read.number("min_step", step.unwrap_or(default_min), 1, most)?;
    let max_step = read.number("max_step", min_step.max(default_max), 1, most)?;
    if min_step > max_step {
        return Err(Error::config(format!(
            "min_step={min_step} is larger than max_step={max_step}; make min_step the smaller one"
        )));
    }
    let ttl_ms = match read.given.get("ttl").map(String::as_str) {
        None | Some("none") => None,
        Some(value) => match read.millis("ttl", 0, 10, 366 * 86_400_000) {
            Ok(ms) => Some(ms),
            Err(_) => {
                return Err(read.bad(
                    "ttl",
                    value,
                    "none, or a time such as 500ms, 3s, 5m or 1h, from 10ms to 366d",
                ));
            }
        },
    };
    let unit = if read.given.contains_key("min_step") { 1 } else { step.unwrap_or(1) };
    let buffer_ms = read.millis("buffer", 30_000, 1, 86_400_000)?;
    Ok(Rules { min_step, max_step, unit, buffer_ms, ttl_ms, ends: false })
}

fn scheme(read: &OptionReader, default: Scheme, valid: &[Scheme]) -> Result<(Scheme, String)> {
    let mut choices: Vec<(&str, Scheme)> = valid.iter().map(|s| (s.name(), *s)).collect();
    choices.sort_by_key(|(_, s)| *s != default);
    let scheme = read.one_of("scheme", &choices)?;
    let table = read.text("table", scheme.default_table());
    check_identifier(&table, "table")?;
    Ok((scheme, table))
}

/// `columns=cur_id:current_no,biz_type:name`: columns whose names differ from the scheme authors' names.
fn columns(read: &OptionReader, scheme: Scheme) -> Result<Columns> {
    let Some(value) = read.given.get("columns") else { return Ok(Columns::default()) };
    let known = scheme.renamable();
    if known.is_empty() {
        return Err(Error::config(format!(
            "option `columns` has no meaning for scheme={}, whose table is keymill's own; leave it out",
            scheme.name()
        )));
    }
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in value.split(',') {
        let Some((column, own)) = pair.split_once(':') else {
            return Err(read.bad("columns", value, "column:own_name, more of them with commas between"));
        };
        // Case-insensitive, as names are in SQL.
        let Some(column) = known.iter().find(|known| known.eq_ignore_ascii_case(column)) else {
            return Err(Error::config(format!(
                "scheme={} has no column `{}` that keymill reads or writes; valid: {}",
                scheme.name(),
                shown(column),
                known.join(", ")
            )));
        };
        check_identifier(own, "column")?;
        if pairs.iter().any(|(named, _)| named == column) {
            return Err(Error::config(format!("option `columns` names `{column}` twice")));
        }
        pairs.push(((*column).to_owned(), own.to_owned()));
    }
    pairs.sort_unstable();
    let columns = Columns::new(pairs);
    let mut names: Vec<String> =
        known.iter().map(|column| columns.own(column).to_ascii_lowercase()).collect();
    names.sort_unstable();
    let same = names.iter().zip(names.iter().skip(1)).find(|(one, next)| one == next);
    if let Some((twice, _)) = same {
        return Err(Error::config(format!(
            "with `columns={}` two columns of scheme={} would be called `{}`",
            shown(value),
            scheme.name(),
            twice
        )));
    }
    Ok(columns)
}

fn segment(parts: &Split, read: &OptionReader, common: Common) -> Result<Spec> {
    let name = decode(&parts.name, "the source's name")?;
    check_name(&name, "the source's name")?;
    let schemes: Vec<Scheme> = Scheme::ALL.into_iter().filter(|scheme| scheme.keeps_segments()).collect();
    let (scheme, table) = scheme(read, Scheme::Keymill, &schemes)?;
    let table = if scheme.is_shared_sequence() && !read.is_given("table") {
        scheme_options::sequence_of(&name)?
    } else {
        table
    };
    let label = format!("segment:{name}");
    let allocated = scheme_options::allocation(read, scheme)?;
    let is_pooled = scheme_options::is_pooled(read, scheme, allocated)?;
    let default_step =
        if scheme.is_shared_sequence() { allocated } else { scheme.is_ticket().then_some(1000) };
    let rules = rules(read, default_step, LARGEST_STEP)?;
    if scheme.is_ticket() {
        scheme_options::check_ticket_options(read, scheme)?;
    }
    let unsafe_on = read.one_of("unsafe", &[("off", false), ("on", true)])?;
    if unsafe_on && !scheme.is_sequence() {
        return Err(Error::config(format!(
            "option `unsafe=on` is for scheme=sequence and scheme=jpa_sequence; scheme={} issues nothing twice, leave it out",
            scheme.name()
        )));
    }
    Ok(Spec {
        text: common.text,
        command: None,
        label,
        key: Arc::new(Key {
            columns: columns(read, scheme)?,
            step: allocated.unwrap_or(rules.min_step),
            unsafe_on,
            is_pooled,
            stride: scheme_options::stride(read, scheme)?,
            ..Key::segment(scheme, &table, &name)
        }),
        order: common.order,
        block: common.block,
        deadline: common.deadline,
        form: common.form,
        snowflake: None,
        worker_read: String::new(),
        bank: None,
        lead_is_written: true,
        takes_program_zone: false,
        skew_ms: 0,
        rules,
        start: read.number("start", 1, 1, MAX_NUMBER)?,
        last: MAX_NUMBER,
        heal: read.one_of("backwards", &[("refuse", false), ("heal", true)])?,
    })
}

/// Whether `init=max` is given, which reads the business table.
fn init_max(read: &OptionReader, scheme: Scheme, sql_store: bool, table: &str, column: &str) -> Result<bool> {
    if !read.one_of("init", &[("none", false), ("max", true)])? {
        return Ok(false);
    }
    if scheme != Scheme::KeyProducer || !sql_store {
        return Err(Error::config(
            "`init=max` reads the business table, so it needs scheme=key_producer on a SQL store",
        ));
    }
    check_identifier(table, "with `init=max`, the table's name")?;
    check_identifier(column, "with `init=max`, the column's name")?;
    Ok(true)
}

fn serial(
    parts: &Split,
    read: &OptionReader,
    common: Common,
    sql_store: bool,
    program_zone: Option<&str>,
) -> Result<Spec> {
    let (table_part, column_part) = parts.name.split_once('/').ok_or_else(|| {
        Error::config(format!("`serial:{}` names no column; write serial:TABLE/COLUMN", shown(&parts.name)))
    })?;
    let table = decode(table_part, "the table's name")?;
    let column = decode(column_part, "the column's name")?;
    check_name(&table, "the table's name")?;
    check_name(&column, "the column's name")?;
    let date = read.text("date", "yyyyMMdd");
    let number = read.text("number", "00000000");
    let zone = read.text("zone", "local");
    let is_local = zone == "local";
    let pattern = SerialPattern::of_program(&date, &number, &zone, program_zone)?;
    let takes_program_zone = is_local && pattern.is_dated();
    // A command that is copied from a message into another shell has to mean this zone.
    let text = if takes_program_zone && pattern.zone_name() != "local" {
        let zone = ("zone".to_owned(), pattern.zone_name().to_owned());
        let given: Options = read.given.clone().into_iter().chain([zone]).collect();
        spelled(&format!("serial:{}", parts.name), &given)
    } else {
        common.text
    };
    let default = if sql_store { Scheme::KeyProducer } else { Scheme::Keymill };
    let schemes: Vec<Scheme> = Scheme::ALL.into_iter().filter(|scheme| scheme.keeps_serials()).collect();
    let (scheme, row_table) = scheme(read, default, &schemes)?;
    let init_max = init_max(read, scheme, sql_store, &table, &column)?;
    let widen = read.one_of("overflow", &[("error", false), ("widen", true)])?;
    let label = format!("serial:{table}/{column}");
    let space = pattern.last();
    // A signed 64-bit number holds every number of eighteen digits, not every one of nineteen.
    let last = if widen { 999_999_999_999_999_999 } else { pattern.last() };
    // A day's numbers are few: no process reserves more than a hundredth of them at a time, and a cold one no more than that.
    let hundredth = (space / 100).max(1);
    let rules = rules(read, Some(hundredth.min(500)), hundredth.min(LARGEST_STEP))?;
    let rules = Rules { ends: true, ..rules };
    // Nor does a thread hold more than a cold process reserves.
    let block = if read.is_given("block") { common.block } else { common.block.min(rules.min_step) };
    Ok(Spec {
        text,
        command: None,
        label,
        key: Arc::new(Key {
            columns: columns(read, scheme)?,
            ..Key::of_serials(scheme, &row_table, SerialKey { table, column, pattern, init_max })
        }),
        order: common.order,
        block,
        deadline: common.deadline,
        form: common.form,
        snowflake: None,
        worker_read: String::new(),
        bank: None,
        lead_is_written: true,
        takes_program_zone,
        skew_ms: read.millis("skew", 5000, 0, 86_400_000)?,
        rules,
        start: 1,
        last,
        heal: read.one_of("backwards", &[("refuse", false), ("heal", true)])?,
    })
}

fn business(parts: &Split, read: &OptionReader, common: Common) -> Result<Spec> {
    let name = decode(&parts.name, "the source's name")?;
    check_name(&name, "the source's name")?;
    let counters =
        read.number("counters", 1, 1, u64::from(MOST_COUNTERS)).ok().filter(|n| n.is_power_of_two());
    let Some(counters) = counters.and_then(|n| u32::try_from(n).ok()) else {
        let given = read.text("counters", "1");
        return Err(read.bad("counters", &given, "a power of two from 1 to 65536"));
    };
    let is_named = read.given.contains_key("counters");
    let bank = BankSpec { counters, is_named, wide: read.one_of("wide", &[("off", false), ("on", true)])? };
    if bank.wide && !common.form.is_plain() {
        return Err(Error::config(
            "options `text` and `prefix` are for ids of 64 bits; leave them out, or leave out `wide=on`",
        ));
    }
    if let Some(other) = read.given.get("scheme").filter(|scheme| *scheme != Scheme::Keymill.name()) {
        return Err(Error::config(format!(
            "option `scheme={}` of `business` is not valid: the counters of business ids are rows of keymill's own table; valid: keymill",
            shown(other)
        )));
    }
    let (_, table) = scheme(read, Scheme::Keymill, &[Scheme::Keymill])?;
    Ok(Spec {
        text: common.text,
        command: None,
        label: format!("business:{name}"),
        key: Arc::new(Key::bank(&table, &name)),
        order: common.order,
        block: common.block,
        deadline: common.deadline,
        form: common.form,
        snowflake: None,
        worker_read: String::new(),
        bank: Some(bank),
        lead_is_written: true,
        takes_program_zone: false,
        skew_ms: 0,
        rules: rules_from(read, None, 16, LARGEST_STEP)?,
        start: read.number("start", 1, 1, bank.last())?,
        last: bank.last(),
        heal: read.one_of("backwards", &[("refuse", false), ("heal", true)])?,
    })
}

fn snowflake(parts: &Split, read: &OptionReader, common: Common) -> Result<Spec> {
    let name = decode(&parts.name, "the source's name")?;
    check_name(&name, "the source's name")?;
    let layout = Layout::parse(&read.text("layout", "twitter"), &read.text("epoch", "2025-01-01"))?
        .scattered(Scatter::parse(&read.text("scatter", "0"))?)?;
    let Chosen { worker, from, worker_read, is_marked } = worker_option::chosen(read, &layout)?;
    let by_data_centre = read.given.get("worker").is_some_and(|value| value.contains('+'));
    let clock_back = read.one_of(
        "clock_back",
        &[("borrow", ClockBack::Borrow), ("wait", ClockBack::Wait), ("error", ClockBack::Error)],
    )?;
    let max_lead_ms = read.millis("max_lead", 3000, 1, 3_600_000)?;
    let is_leased = matches!(worker, Worker::Leased { .. });
    let lead_is_written = read.is_given("max_lead") && (!is_leased || read.is_given("lease"));
    let (_, table) = scheme(read, Scheme::Keymill, &[Scheme::Keymill])?;
    let label = format!("snowflake:{name}");
    let key = match worker {
        // The mark belongs to the worker, however the layout is spelled. It is a tick, as ids hold it: with another epoch equal ticks
        // make equal ids, so the epoch is no part of the key.
        Worker::Fixed(worker) => {
            Key::mark(&table, &name, layout.spellings().first().map_or("", String::as_str), worker)
        }
        Worker::Disposable => Key::node(&read.text("table", Scheme::WorkerNode.default_table()), &name),
        Worker::Leased { .. } => {
            let pool = read.text("pool", &name);
            check_name(&pool, "the pool's name")?;
            Key::pool(&read.text("table", Scheme::Worker.default_table()), &pool)
        }
    };
    let layout = if by_data_centre { layout.with_data_centre()? } else { layout };
    Ok(Spec {
        text: common.text,
        command: None,
        label,
        key: Arc::new(key),
        order: common.order,
        block: common.block,
        deadline: common.deadline,
        form: common.form,
        snowflake: Some(SnowflakeSpec {
            layout,
            worker,
            from,
            is_marked,
            by_data_centre,
            clock_back,
            max_lead_ms,
        }),
        worker_read,
        bank: None,
        lead_is_written,
        takes_program_zone: false,
        skew_ms: 0,
        rules: Rules::default(),
        start: 0,
        last: MAX_NUMBER,
        heal: false,
    })
}
