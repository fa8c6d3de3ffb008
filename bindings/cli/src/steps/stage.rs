//! What a scenario acts on: steps in, what they answer out. `tests/languages/vectors.rs` plays on it too.

use std::collections::HashMap;

use keymill::{Gene, GeneKey, Kind, Mill, OrderNumbers, Parts, Result, Route, Router, Source};
use serde_json::Value;

/// What the steps act on: one mill at a time; sources, routers and order numbers by the names steps give them.
#[derive(Debug)]
pub struct Stage {
    mill: Option<Mill>,
    sources: HashMap<String, Source>,
    routers: HashMap<String, Router>,
    numbers: HashMap<String, OrderNumbers>,
}

impl Stage {
    /// A stage with this mill open, or none.
    pub fn new(mill: Option<Mill>) -> Stage {
        Stage { mill, sources: HashMap::new(), routers: HashMap::new(), numbers: HashMap::new() }
    }

    /// Carries out one step: what it answers, if anything, or the library's error. `Err`: it is no step, and why.
    pub fn step(&mut self, step: &Value) -> std::result::Result<Result<Option<Value>>, String> {
        Ok(match text(step, "do")? {
            "open" => {
                self.close();
                Mill::open(text(step, "config")?).map(|mill| {
                    self.mill = Some(mill);
                    None
                })
            }
            "close" => {
                self.mill()?.close();
                Ok(None)
            }
            "source" => {
                let name = text(step, "as")?.to_owned();
                self.mill()?.source(text(step, "spec")?).map(|source| {
                    self.sources.insert(name, source);
                    None
                })
            }
            "parse" => self.source(step)?.parse_text(text(step, "id")?).map(|parts| Some(fields(&parts))),
            "parse_number" => {
                self.source(step)?.parse_number(text(step, "id")?).map(|parts| Some(fields(&parts)))
            }
            "clock_set" => self.mill()?.set_clock(number(step, "ms")?).map(|()| None),
            "clock_advance" => self.mill()?.advance_clock(number(step, "ms")?).map(|()| None),
            "spec" => {
                let name = texts(step.get("name"), "name")?;
                let options =
                    step.get("options").and_then(Value::as_array).ok_or("it has no list `options`")?;
                let pairs = options.iter().map(|pair| match texts(Some(pair), "options")?[..] {
                    [option, value] => Ok((option, value)),
                    _ => Err("an option is a list of two texts".to_owned()),
                });
                let pairs = pairs.collect::<std::result::Result<Vec<_>, String>>()?;
                Ok(Some(keymill::spec_string(text(step, "kind")?, &name, &pairs).into()))
            }
            "store_of" => {
                let given = step.get("properties").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let pairs = given.iter().map(|pair| match texts(Some(pair), "properties")?[..] {
                    [name, value] => Ok((name, value)),
                    _ => Err("a property is a list of two texts".to_owned()),
                });
                let pairs = pairs.collect::<std::result::Result<Vec<_>, String>>()?;
                keymill::store_of(text(step, "url")?, &pairs).map(|mill| Some(mill.into()))
            }
            "document" => document(step)?.map(|()| None),
            "gene" => Gene::of(key(step)?.as_key()).map(|gene| Some(gene.to_string().into())),
            verb => match self.ids(verb, step)? {
                Some(ids) => ids.map(Some),
                None => match self.routing(verb, step)? {
                    Some(answer) => answer,
                    None => self.sealing(verb, step)?.ok_or_else(|| format!("`{verb}` is no step"))?,
                },
            },
        })
    }

    /// The verbs that answer with ids; `None`: it is none of them.
    fn ids(&self, verb: &str, step: &Value) -> std::result::Result<Option<Result<Value>>, String> {
        Ok(Some(match verb {
            "next" | "next_text" => self.source(step)?.next_text().map(Value::from),
            "try_next" => self.source(step)?.try_next_text().map(Value::from),
            "take" => take(self.source(step)?, number(step, "count")?).map(Value::from),
            "next_for" => self.source(step)?.next_for(key(step)?.as_key()).map(|id| id.to_string().into()),
            "try_next_for" => {
                self.source(step)?.try_next_for(key(step)?.as_key()).map(|id| id.to_string().into())
            }
            "take_for" => {
                let ids = self.source(step)?.take_for(key(step)?.as_key(), number(step, "count")?);
                ids.map(|ids| ids.iter().map(u64::to_string).collect())
            }
            "take_text" => {
                let texts = self.source(step)?.take_text(number(step, "count")?);
                texts.map(|texts| texts.into_iter().collect())
            }
            "next_text_for" => self.source(step)?.next_text_for(key(step)?.as_key()).map(Value::from),
            "take_text_for" => {
                let texts = self.source(step)?.take_text_for(key(step)?.as_key(), number(step, "count")?);
                texts.map(|texts| texts.into_iter().collect())
            }
            "text_of" => self.source(step)?.text_of(number(step, "id")?).map(Value::from),
            "next_wide_for" => {
                self.source(step)?.next_wide_for(key(step)?.as_key()).map(|id| id.to_string().into())
            }
            "take_wide_for" => {
                let ids = self.source(step)?.take_wide_for(key(step)?.as_key(), number(step, "count")?);
                ids.map(|ids| ids.iter().map(u128::to_string).collect())
            }
            _ => return Ok(None),
        }))
    }

    /// The verbs of routers; `None`: it is none of them.
    fn routing(
        &mut self,
        verb: &str,
        step: &Value,
    ) -> std::result::Result<Option<Result<Option<Value>>>, String> {
        Ok(Some(match verb {
            "router" => {
                let name = text(step, "as")?.to_owned();
                Router::from_text(text(step, "table")?).map(|router| {
                    self.routers.insert(name, router);
                    None
                })
            }
            "load" => self.router(step)?.load(text(step, "table")?).map(|_| None),
            "route" => self.router(step)?.route(number(step, "id")?).map(|route| Some(shown(route))),
            "route_wide" => {
                self.router(step)?.route_wide(number(step, "id")?).map(|route| Some(shown(route)))
            }
            "is_current" => {
                let (router, table) = (self.router(step)?, text(step, "table")?);
                router.route(number(step, "id")?).and_then(|route| {
                    router.load(table)?;
                    Ok(Some(Value::from(if router.is_current(&route) { "yes" } else { "no" })))
                })
            }
            "route_key" => self.router(step)?.route_key(key(step)?.as_key()).map(|route| Some(shown(route))),
            "route_order_no" => {
                let router = self.router(step)?;
                let route = if step.get("number").is_some() {
                    router.route_order_no(number::<u64>(step, "number")?)
                } else if step.get("text").is_some() {
                    router.route_order_no(text(step, "text")?)
                } else {
                    router.route_order_no(&*bytes(text(step, "no")?)?)
                };
                route.map(|route| Some(shown(route)))
            }
            _ => return Ok(None),
        }))
    }

    /// The verbs of order numbers; `None`: it is none of them.
    fn sealing(
        &mut self,
        verb: &str,
        step: &Value,
    ) -> std::result::Result<Option<Result<Option<Value>>>, String> {
        if verb == "numbers" {
            let name = text(step, "as")?.to_owned();
            return Ok(Some(opened(step)?.map(|numbers| {
                self.numbers.insert(name, numbers);
                None
            })));
        }
        let name = step.get("of").and_then(Value::as_str).unwrap_or_default();
        let Some(numbers) = self.numbers.get(name) else {
            let is_one = verb.starts_with("seal") || verb.starts_with("unseal");
            return if is_one { Err(format!("no order numbers are called `{name}`")) } else { Ok(None) };
        };
        let answer = match verb {
            "seal" => numbers.seal(number(step, "id")?).map(Sealed::Bytes),
            "seal_wide" => numbers.seal_wide(number(step, "id")?).map(Sealed::Bytes),
            "seal8" => numbers.seal8(number(step, "id")?).map(Sealed::Number),
            "unseal" => numbers.unseal(&bytes(text(step, "no")?)?).map(Sealed::Number),
            "unseal_wide" => numbers.unseal_wide(&bytes(text(step, "no")?)?).map(Sealed::Wide),
            "unseal8" => numbers.unseal8(number(step, "no")?).map(Sealed::Number),
            "seal_text" => numbers.seal_text(number(step, "id")?).map(Sealed::Text),
            "seal_wide_text" => numbers.seal_wide_text(number(step, "id")?).map(Sealed::Text),
            "seal8_text" => numbers.seal8_text(number(step, "id")?).map(Sealed::Text),
            "unseal_text" => numbers.unseal_text(text(step, "no")?).map(Sealed::Number),
            "unseal_wide_text" => numbers.unseal_wide_text(text(step, "no")?).map(Sealed::Wide),
            "unseal8_text" => numbers.unseal8_text(text(step, "no")?).map(Sealed::Number),
            "seal_all" => numbers.seal_all(&all(step, "ids")?).map(Sealed::AllBytes),
            "unseal_all" => numbers.unseal_all(&all_bytes(step)?).map(Sealed::All),
            "seal8_all" => numbers.seal8_all(&all(step, "ids")?).map(Sealed::All),
            "unseal8_all" => numbers.unseal8_all(&all(step, "nos")?).map(Sealed::All),
            "numbers_version" => Ok(Sealed::Number(numbers.version().into())),
            _ => return Ok(None),
        };
        Ok(Some(answer.map(|sealed| Some(sealed.shown()))))
    }

    /// Closes the mill and forgets its sources.
    pub fn close(&mut self) {
        self.sources.clear();
        if let Some(mill) = self.mill.take() {
            mill.close();
        }
    }

    fn mill(&self) -> std::result::Result<&Mill, String> {
        self.mill.as_ref().ok_or_else(|| "no mill is open".to_owned())
    }

    fn router(&self, step: &Value) -> std::result::Result<&Router, String> {
        let name = text(step, "of")?;
        self.routers.get(name).ok_or_else(|| format!("no router is called `{name}`"))
    }

    fn source(&self, step: &Value) -> std::result::Result<&Source, String> {
        let name = text(step, "of")?;
        self.sources.get(name).ok_or_else(|| format!("no source is called `{name}`"))
    }
}

/// The stack on which a document is read.
const SMALL_STACK: usize = 256 << 10;

/// Reads the text that a step's pieces make, each so many times, on a small stack.
fn document(step: &Value) -> std::result::Result<Result<()>, String> {
    let pieces = step.get("text").and_then(Value::as_array).ok_or("it has no list `text`")?;
    let mut all = String::new();
    for piece in pieces {
        let [piece, times] = texts(Some(piece), "text")?[..] else {
            return Err("a piece is a list of a text and how often it comes".to_owned());
        };
        let times = times.parse().map_err(|_| format!("`{times}` is no number"))?;
        all.push_str(&piece.repeat(times));
    }
    let kind = text(step, "kind")?;
    let table = if kind == "load" { text(step, "table")? } else { "" };
    let read = || match kind {
        "routes" => Ok(Router::from_text(&all).map(drop)),
        "load" => Ok(Router::from_text(table).and_then(|router| router.load(&all)).map(drop)),
        "keys" => in_a_file(&all, |path| OrderNumbers::open(path, "", "").map(drop)),
        "config" => in_a_file(&all, |path| Mill::open(&format!("file:{path}")).map(|mill| mill.close())),
        _ => Err(format!("`{kind}` is no document")),
    };
    std::thread::scope(|scope| {
        let small = std::thread::Builder::new().stack_size(SMALL_STACK).spawn_scoped(scope, read);
        let read = small.map_err(|e| format!("no thread: {e}"))?.join();
        read.map_err(|_| "the thread that read the document has panicked".to_owned())?
    })
}

/// Calls `read` with the path of a file of this text, which only this user can read.
fn in_a_file<T>(text: &str, read: impl FnOnce(&str) -> T) -> std::result::Result<T, String> {
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};
    static FILES: AtomicUsize = AtomicUsize::new(0);
    // ordering: Relaxed — only uniqueness matters.
    let name = format!("keymill-steps-{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = keymill::binding::create_private(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    let answer = written.map(|()| read(&path.to_string_lossy()));
    let _ = std::fs::remove_file(&path);
    answer.map_err(|e| format!("{}: {e}", path.display()))
}

/// The keys that a step gives, and the version that it chooses.
fn opened(step: &Value) -> std::result::Result<Result<OrderNumbers>, String> {
    let list = step.get("keys").and_then(Value::as_array).ok_or("it has no list `keys`")?;
    let keys = list.iter().map(|pair| match texts(Some(pair), "keys")?[..] {
        [version, key] => Ok((version.parse::<u8>().map_err(|_| "a version is 0 to 255")?, bytes(key)?)),
        _ => Err("a key is a list of its version and its digits".to_owned()),
    });
    let keys = keys.collect::<std::result::Result<Vec<_>, String>>()?;
    let keys: Vec<_> = keys.iter().map(|(version, key)| (*version, key.as_slice())).collect();
    let (tenant, table) = (text(step, "tenant")?, text(step, "table")?);
    let numbers = OrderNumbers::from_keys(&keys, number(step, "seal_with")?, tenant, table);
    if step.get("version").is_none() {
        return Ok(numbers);
    }
    let version = number(step, "version")?;
    Ok(numbers.and_then(|numbers| numbers.with_version(version)))
}

/// What a verb of order numbers answers.
enum Sealed {
    Bytes([u8; 16]),
    Number(u64),
    Wide(u128),
    Text(String),
    AllBytes(Vec<[u8; 16]>),
    All(Vec<u64>),
}

impl Sealed {
    fn shown(self) -> Value {
        match self {
            Sealed::Bytes(bytes) => hex(&bytes).into(),
            Sealed::Number(number) => number.to_string().into(),
            Sealed::Wide(number) => number.to_string().into(),
            Sealed::Text(text) => text.into(),
            Sealed::AllBytes(all) => all.iter().map(|bytes| hex(bytes)).collect(),
            Sealed::All(all) => all.iter().map(u64::to_string).collect(),
        }
    }
}

fn all(step: &Value, field: &str) -> std::result::Result<Vec<u64>, String> {
    let digits = texts(step.get(field), field)?.into_iter();
    digits.map(|digits| digits.parse().map_err(|_| format!("`{digits}` is no number"))).collect()
}

fn all_bytes(step: &Value) -> std::result::Result<Vec<[u8; 16]>, String> {
    let digits = texts(step.get("nos"), "nos")?.into_iter();
    digits
        .map(|digits| bytes(digits)?.try_into().map_err(|_| format!("`{digits}` is not 16 bytes")))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |all, byte| all + &format!("{byte:02x}"))
}

/// The bytes that hexadecimal digits write.
fn bytes(digits: &str) -> std::result::Result<Vec<u8>, String> {
    let byte = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..digits.len())
        .step_by(2)
        .map(|at| byte(at).ok_or_else(|| format!("`{digits}` is not bytes")))
        .collect()
}

/// A business key of a step.
enum Key {
    Number(u64),
    Text(String),
}

impl Key {
    fn as_key(&self) -> GeneKey<'_> {
        match self {
            Key::Number(key) => GeneKey::from(*key),
            Key::Text(key) => GeneKey::from(key),
        }
    }
}

/// `key`, a number with or without a sign, or `key_text`, as often as `times` says.
fn key(step: &Value) -> std::result::Result<Key, String> {
    if step.get("key_text").is_some() {
        let times = if step.get("times").is_some() { number(step, "times")? } else { 1 };
        return Ok(Key::Text(text(step, "key_text")?.repeat(times)));
    }
    let signed = number::<i64>(step, "key").map(|key| key as u64);
    signed.or_else(|_| number(step, "key")).map(Key::Number)
}

/// The answer of a router.
fn shown(route: Route<'_>) -> Value {
    let fields = route.fields().into_iter();
    Value::Object(fields.map(|(name, value)| (name.to_owned(), value.into())).collect())
}

/// What an id is made of.
fn fields(parts: &Parts) -> Value {
    parts.fields().into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// A batch: texts of a serial, else ids in decimal.
fn take(source: &Source, count: usize) -> Result<Vec<String>> {
    if source.kind() == Kind::Serial {
        return source.take_text(count);
    }
    Ok(source.take(count)?.iter().map(u64::to_string).collect())
}

fn text<'a>(step: &'a Value, field: &str) -> std::result::Result<&'a str, String> {
    step.get(field).and_then(Value::as_str).ok_or_else(|| format!("it has no text `{field}`"))
}

fn texts<'a>(list: Option<&'a Value>, field: &str) -> std::result::Result<Vec<&'a str>, String> {
    let list = list.and_then(Value::as_array).ok_or_else(|| format!("it has no list `{field}`"))?;
    list.iter().map(|v| v.as_str().ok_or_else(|| format!("`{field}` is a list of texts"))).collect()
}

fn number<N: std::str::FromStr>(step: &Value, field: &str) -> std::result::Result<N, String> {
    let digits = text(step, field)?;
    digits.parse().map_err(|_| format!("`{field}` is not a whole number: `{digits}`"))
}
