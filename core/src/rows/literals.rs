//! Names and values in the words of MySQL and of PostgreSQL.

use std::fmt::Write as _;

use super::shard::ShardKind;

/// A name between quotes.
pub fn quoted(kind: ShardKind, name: &str) -> String {
    let quote = if kind == ShardKind::MySql { "`" } else { "\"" };
    format!("{quote}{}{quote}", name.replace(quote, &quote.repeat(2)))
}

/// A text of keymill's own.
pub fn text_literal(kind: ShardKind, text: &str) -> String {
    let mut out = String::new();
    write_literal(&mut out, kind, "utf8mb4", text.as_bytes());
    out
}

/// Writes a text with other words in place of some letters. Each of these letters is one byte.
pub fn push_escaped<const N: usize>(out: &mut String, text: &str, escapes: [(char, &str); N]) {
    let mut rest = text;
    while let Some(at) = rest.find(escapes.map(|(letter, _)| letter)) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        for (_, escaped) in escapes.iter().filter(|(letter, _)| from.starts_with(*letter)) {
            out.push_str(escaped);
        }
        rest = from.get(1..).unwrap_or_default();
    }
    out.push_str(rest);
}

/// Writes a value as it was read. PostgreSQL takes the type of the column that it is for.
pub fn write_literal(out: &mut String, kind: ShardKind, charset: &str, bytes: &[u8]) {
    if kind == ShardKind::MySql && !charset.is_empty() {
        out.push('_');
        out.push_str(charset);
        out.push(' ');
    }
    match (kind, std::str::from_utf8(bytes)) {
        (ShardKind::Postgres, text) => {
            let text = text.unwrap_or_default();
            out.push('\'');
            push_escaped(out, text, [('\'', "''")]);
            out.push('\'');
        }
        (ShardKind::MySql, Ok(text)) => {
            out.push('\'');
            push_escaped(out, text, [('\'', "''"), ('\\', "\\\\"), ('\0', "\\0")]);
            out.push('\'');
        }
        (ShardKind::MySql, Err(_)) => {
            out.push_str("X'");
            for byte in bytes {
                let _ = write!(out, "{byte:02x}");
            }
            out.push('\'');
        }
    }
}
