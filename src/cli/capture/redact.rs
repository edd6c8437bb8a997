//! Values made unreadable, so that records can be given to others. A stand-in has the type of what it stands for, and
//! equal values have equal stand-ins within one capture, by a key that nobody keeps.

use std::cell::Cell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::Rng as _;
use sha2::{Digest as _, Sha256};

use crate::debezium::convert::uuid_from_bytes;
use crate::debezium::value::{Row, Value};
use crate::debezium::{json, render};
use crate::record::Record;

/// What is to be made unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Names of the payload's levels.
    Value(Vec<String>),
    /// The same of the key; none for all of it.
    Key(Vec<String>),
    Header(String),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(path) => write!(f, "value:{}", path.join(".")),
            Self::Key(path) if path.is_empty() => f.write_str("key"),
            Self::Key(path) => write!(f, "key:{}", path.join(".")),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

impl Target {
    /// `[value:]PATH`, `key:PATH`, `key` or `header:NAME`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = |path: &str| -> Result<Vec<String>, String> {
            let names: Vec<String> = path.split('.').map(str::to_owned).collect();
            if names.iter().any(String::is_empty) { Err("a name in the path is empty".to_owned()) } else { Ok(names) }
        };
        match text.split_once(':') {
            Some(("header", "")) => Err("the header has no name".to_owned()),
            Some(("header", name)) => Ok(Self::Header(name.to_owned())),
            Some(("key", names)) => path(names).map(Self::Key),
            Some(("value", names)) => path(names).map(Self::Value),
            Some(_) => Err("begins with none of `value:`, `key:`, `header:`".to_owned()),
            None if text == "key" => Ok(Self::Key(Vec::new())),
            None => path(text).map(Self::Value),
        }
    }
}

pub struct Redactor<'a> {
    targets: &'a [Target],
    secret: [u8; 32],
    /// By target: something stood there.
    met: Vec<Cell<bool>>,
    /// Something stood at the path that was looked at last.
    found: Cell<bool>,
}

impl<'a> Redactor<'a> {
    /// With a key of its own: what stands for a guessable value cannot be found by guessing.
    pub fn new(targets: &'a [Target]) -> Self {
        let met = targets.iter().map(|_| Cell::new(false)).collect();
        Self { targets, secret: rand::rng().random(), met, found: Cell::new(false) }
    }

    /// The targets at which nothing stood in any record: spelled wrong, perhaps, and then everything is still there.
    pub fn unmet(&self) -> impl Iterator<Item = &'a Target> {
        self.targets.iter().zip(&self.met).filter(|(_, met)| !met.get()).map(|(target, _)| target)
    }

    /// Makes all targets of a record unreadable, and leaves everything else as it is.
    ///
    /// # Errors
    /// Why the record must not be shown: a part with targets cannot be looked into.
    pub fn redact(&self, record: &mut Record) -> Result<(), String> {
        // Avro with its id in a header begins with any byte and may look like JSON.
        let framed = |part: &str| record.headers.iter().any(|header| header.name.starts_with(part));
        let (avro_key, avro_value) = (framed("apicurio.key."), framed("apicurio.value."));
        let of_value = self.paths(|target| match target {
            Target::Value(path) => Some(path),
            Target::Key(_) | Target::Header(_) => None,
        });
        let of_key = self.paths(|target| match target {
            Target::Key(path) => Some(path),
            Target::Value(_) | Target::Header(_) => None,
        });
        if let Some(bytes) = record.value.as_mut().filter(|bytes| !bytes.is_empty() && !of_value.is_empty()) {
            *bytes = self.document(bytes, &of_value, avro_value).ok_or("its value is not JSON")?;
        }
        if let Some(bytes) = record.key.as_mut().filter(|bytes| !bytes.is_empty() && !of_key.is_empty()) {
            *bytes = match self.document(bytes, &of_key, avro_key) {
                Some(redacted) => redacted,
                None => match of_key.iter().find(|(_, path)| path.is_empty()) {
                    Some((target, _)) => {
                        self.met[*target].set(true);
                        self.text(bytes).into_bytes()
                    }
                    None => return Err("its key is not JSON".to_owned()),
                },
            };
        }
        for header in &mut record.headers {
            let named = |target: &Target| matches!(target, Target::Header(name) if *name == header.name);
            if let Some(target) = self.targets.iter().position(named) {
                self.met[target].set(true);
                header.value = header.value.take().map(|value| self.text(&value).into_bytes());
            }
        }
        Ok(())
    }

    /// The paths of one part, each with the number of its target.
    fn paths(&self, of: impl Fn(&'a Target) -> Option<&'a Vec<String>>) -> Vec<(usize, &'a [String])> {
        self.targets.iter().enumerate().filter_map(|(n, target)| Some((n, of(target)?.as_slice()))).collect()
    }

    /// Written anew even where no path leads anywhere: of a name that stands twice only one value was seen.
    fn document(&self, bytes: &[u8], paths: &[(usize, &[String])], avro: bool) -> Option<Vec<u8>> {
        let mut document = json::parse(bytes).ok().filter(|_| !avro)?;
        let (payload, schema) = payload(&mut document);
        for (target, path) in paths {
            self.found.set(false);
            self.at(payload, schema.as_ref(), path);
            // The wrapper may be part of the path, too.
            if path.first().is_some_and(|name| name == "payload") {
                self.at(payload, schema.as_ref(), &path[1..]);
            }
            if !path.is_empty() {
                self.states(payload, schema.as_ref(), path);
            }
            if self.found.get() {
                self.met[*target].set(true);
            }
        }
        Some(render::json(&document).into_bytes())
    }

    /// The path in both states of a row.
    fn states(&self, payload: &mut Value, schema: Option<&Row>, path: &[String]) {
        let Value::Struct(envelope) = payload else { return };
        if envelope.get("op").is_none() {
            return;
        }
        for state in ["before", "after"] {
            if let Some(row) = envelope.get_mut(state) {
                self.at(row, schema.and_then(|schema| field(schema, state)), path);
            }
        }
    }

    /// Redacts what stands at the path. A list is looked into entry by entry, a text that holds JSON like that JSON.
    fn at(&self, value: &mut Value, schema: Option<&Row>, path: &[String]) {
        let Some(first) = path.first() else {
            self.found.set(true);
            return self.whole(value, schema);
        };
        match value {
            Value::Struct(row) => {
                // A field whose own name has dots in it is found as well.
                for length in 1..=path.len() {
                    let name = path[..length].join(".");
                    for (field_name, inner) in row.iter_mut() {
                        if field_name == name || (length == 1 && first == "*") {
                            let of = schema.and_then(|schema| field(schema, field_name));
                            self.at(inner, of, &path[length..]);
                        }
                    }
                }
            }
            Value::Array(items) => {
                let of = schema.and_then(|schema| part(schema, "items"));
                for item in items {
                    if first == "*" {
                        self.at(item, of, &path[1..]);
                    }
                    self.at(item, of, path);
                }
            }
            Value::Text(text) => {
                if let Ok(mut inner @ (Value::Struct(_) | Value::Array(_))) = json::parse_text(text) {
                    self.at(&mut inner, None, path);
                    *value = Value::Text(render::json(&inner).into());
                }
            }
            _ => {}
        }
    }

    /// A stand-in for the value, or for all that it is made of.
    fn whole(&self, value: &mut Value, schema: Option<&Row>) {
        match value {
            Value::Null => {}
            Value::Struct(row) => {
                for (name, inner) in row.iter_mut() {
                    self.whole(inner, schema.and_then(|schema| field(schema, name)));
                }
            }
            Value::Array(items) => {
                let of = schema.and_then(|schema| part(schema, "items"));
                items.iter_mut().for_each(|item| self.whole(item, of));
            }
            Value::Bool(_) => *value = Value::Bool(false),
            Value::Text(text) => {
                let text = self.typed(text, schema);
                *value = Value::Text(text.into());
            }
            // JSON as it came knows numbers besides.
            _ => *value = Value::Int(0),
        }
    }

    /// A text that can still be read as what the schema says.
    fn typed(&self, text: &str, schema: Option<&Row>) -> String {
        let word = |name: &str| match schema.and_then(|schema| schema.get(name)) {
            Some(Value::Text(word)) => word.as_str(),
            _ => "",
        };
        match (word("type"), word("name")) {
            // The number 0.
            ("bytes", "org.apache.kafka.connect.data.Decimal") => "AA==".to_owned(),
            ("bytes", _) => STANDARD.encode(self.text(text.as_bytes())),
            (_, "io.debezium.data.Uuid") => {
                let hash = self.hash(text.as_bytes());
                uuid_from_bytes(std::array::from_fn(|at| hash[at]))
            }
            (_, "io.debezium.data.Json") => format!("\"{}\"", self.text(text.as_bytes())),
            (_, "io.debezium.time.ZonedTimestamp") => "1970-01-01T00:00:00Z".to_owned(),
            (_, "io.debezium.time.ZonedTime") => "00:00:00Z".to_owned(),
            (_, "io.debezium.time.IsoDate") => "1970-01-01".to_owned(),
            (_, "io.debezium.time.IsoTime") => "00:00:00".to_owned(),
            (_, "io.debezium.time.IsoTimestamp") => "1970-01-01T00:00:00".to_owned(),
            (_, "io.debezium.time.Interval") => "PT0S".to_owned(),
            _ => self.text(text.as_bytes()),
        }
    }

    fn text(&self, bytes: &[u8]) -> String {
        format!("redacted-{}", render::hex(&self.hash(bytes)[..4]))
    }

    fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        Sha256::new().chain_update(self.secret).chain_update(bytes).finalize().into()
    }
}

/// The payload of a document and its schema, whether it is wrapped or not.
fn payload(document: &mut Value) -> (&mut Value, Option<Row>) {
    let wrapped = match document {
        Value::Struct(row) => matches!(
            (row.len(), row.get("payload"), row.get("schema")),
            (2, Some(_), Some(Value::Null | Value::Struct(_))) | (1, Some(_), None)
        ),
        _ => false,
    };
    if !wrapped {
        return (document, None);
    }
    let Value::Struct(row) = document else { unreachable!("a wrapper is an object") };
    let schema = match row.get("schema") {
        Some(Value::Struct(schema)) => Some(schema.clone()),
        _ => None,
    };
    (row.get_mut("payload").expect("it was there a moment ago"), schema)
}

/// The schema of a field, of a struct or of a map.
fn field<'s>(schema: &'s Row, name: &str) -> Option<&'s Row> {
    let Some(Value::Array(fields)) = schema.get("fields") else { return part(schema, "values") };
    fields.iter().find_map(|field| match field {
        Value::Struct(field) if matches!(field.get("field"), Some(Value::Text(text)) if **text == *name) => Some(field),
        _ => None,
    })
}

fn part<'s>(schema: &'s Row, name: &str) -> Option<&'s Row> {
    match schema.get(name) {
        Some(Value::Struct(inner)) => Some(inner),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
