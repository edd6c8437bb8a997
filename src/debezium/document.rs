//! A key or a value as one document: the decoded payload, and the Connect schema that came with it.
//!
//! This is the seam between wire formats and meaning: JSON is read here, another format builds its own
//! [`Document`], and everything behind sees only values and schemas.

use std::sync::Arc;

use super::event::Fault;
use super::json::{self, JsonError, Parser, Scratch};
use super::schema::Schema;
use super::value::{Row, Value};

/// The payload in its wire form (nothing converted), and its schema if there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub value: Value,
    pub schema: Option<Arc<Schema>>,
}

/// Compiled schemas by their raw text. The JSON converter repeats the schema in every record, often ten times as
/// long as the payload; a known one is stepped over byte for byte.
#[derive(Clone, Debug, Default)]
pub struct SchemaCache {
    /// Most recently used first.
    known: Vec<(Arc<str>, Arc<Schema>)>,
    scratch: Scratch,
}

/// More tables than this in one lane's topics is unusual; the rest is compiled again when it comes.
const CACHED_SCHEMAS: usize = 256;

/// How Connect's `JsonConverter` begins and goes on.
const SCHEMA_FIRST: &str = "{\"schema\":";
const PAYLOAD_NEXT: &str = ",\"payload\":";

impl Document {
    /// Reads JSON bytes, with or without the schema wrapper.
    pub fn json(bytes: &[u8], cache: &mut SchemaCache) -> Result<Self, Fault> {
        let text =
            simdutf8::basic::from_utf8(bytes).map_err(|_| Fault::new("undecodable", "the value is not utf-8"))?;
        if let Some((payload, schema)) = cache.step_over(text)? {
            return Ok(Self { value: payload, schema: Some(schema) });
        }
        let value = json::parse_with(text, &mut cache.scratch).map_err(undecodable)?;
        match unwrap(value) {
            Unwrapped::Bare(value) => Ok(Self { value, schema: None }),
            Unwrapped::Schema { schema, payload } => {
                let schema = Arc::new(Schema::compile(&schema)?);
                cache.remember(text, &schema);
                Ok(Self { value: payload, schema: Some(schema) })
            }
        }
    }

    /// No value at all, or a JSON null, wrapped or not.
    pub fn null() -> Self {
        Self { value: Value::Null, schema: None }
    }
}

/// What a wrapper held.
pub enum Unwrapped {
    /// No wrapper, or one whose schema is null.
    Bare(Value),
    Schema {
        schema: Row,
        payload: Value,
    },
}

/// Takes a wrapper off: an object of exactly `schema` and `payload` whose schema is null or a Connect schema, or
/// of `payload` alone around an envelope. A row that merely has columns of these names is left alone.
pub fn unwrap(value: Value) -> Unwrapped {
    let Value::Struct(mut row) = value else {
        return Unwrapped::Bare(value);
    };
    let wraps = match (row.len(), row.get("payload")) {
        (2, Some(_)) => match row.get("schema") {
            Some(Value::Null) => true,
            Some(Value::Struct(schema)) => is_connect_schema(schema),
            _ => false,
        },
        (1, Some(Value::Struct(payload))) => super::shape::is_envelope(payload),
        _ => false,
    };
    if !wraps {
        return Unwrapped::Bare(Value::Struct(row));
    }
    let payload = row.remove("payload").unwrap_or(Value::Null);
    match row.remove("schema") {
        Some(Value::Struct(schema)) => Unwrapped::Schema { schema, payload },
        _ => Unwrapped::Bare(payload),
    }
}

impl SchemaCache {
    /// The payload behind a schema that is known: `{"schema":KNOWN,"payload":…}`. An object's text ends where it
    /// ends, so equal bytes from its start are the same object.
    fn step_over(&mut self, text: &str) -> Result<Option<(Value, Arc<Schema>)>, Fault> {
        let Some(rest) = text.strip_prefix(SCHEMA_FIRST) else {
            return Ok(None);
        };
        let known = self.known.iter().position(|(raw, _)| {
            rest.as_bytes().starts_with(raw.as_bytes()) && rest[raw.len()..].starts_with(PAYLOAD_NEXT)
        });
        let Some(at) = known else { return Ok(None) };
        self.known[..=at].rotate_right(1);
        let (raw, schema) = &self.known[0];
        let mut parser = Parser::new(&rest[raw.len() + PAYLOAD_NEXT.len()..], &mut self.scratch);
        let payload = (|| {
            parser.space();
            let payload = parser.value(1)?;
            parser.space();
            // A third member would make it no wrapper: read it the long way.
            if !parser.eat("}") {
                return Ok(None);
            }
            parser.end()?;
            parser.unique()?;
            Ok(Some(payload))
        })();
        let payload = payload.map_err(undecodable)?;
        Ok(payload.map(|payload| (payload, Arc::clone(schema))))
    }

    fn remember(&mut self, text: &str, schema: &Arc<Schema>) {
        let Some(rest) = text.strip_prefix(SCHEMA_FIRST) else {
            return;
        };
        let mut parser = Parser::new(rest, &mut self.scratch);
        if parser.value(1).is_err() || !parser.rest().starts_with(PAYLOAD_NEXT) {
            return;
        }
        self.known.truncate(CACHED_SCHEMAS - 1);
        self.known.insert(0, (rest[..parser.at()].into(), Arc::clone(schema)));
    }
}

fn undecodable(error: JsonError) -> Fault {
    let detail = match error {
        // JSON by its grammar, but with two readings: an id from it would be a guess.
        JsonError::Repeated(_) => format!("ambiguous json: {error}"),
        JsonError::Utf8(_) | JsonError::Syntax { .. } | JsonError::Depth => format!("not json: {error}"),
    };
    Fault::new("undecodable", detail)
}

fn is_connect_schema(schema: &Row) -> bool {
    const TYPES: [&str; 13] = [
        "struct", "map", "array", "string", "bytes", "boolean", "int8", "int16", "int32", "int64", "float", "double",
        "float32",
    ];
    matches!(schema.get("type"), Some(Value::Text(kind)) if TYPES.contains(&&**kind) || &**kind == "float64")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debezium::render;

    const SCHEMA: &str =
        r#"{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"optional":false}"#;

    fn read(text: &str, cache: &mut SchemaCache) -> Document {
        Document::json(text.as_bytes(), cache).unwrap()
    }

    #[test]
    fn a_known_schema_reads_as_an_unknown_one() {
        let mut warm = SchemaCache::default();
        let other = SCHEMA.replace("id", "no");
        for schema in [SCHEMA, &other] {
            for payload in ["{\"id\":1}", "null", " {\"id\": 2} ", "[1]"] {
                let text = format!("{{\"schema\":{schema},\"payload\":{payload}}}");
                read(&text, &mut warm);
                assert_eq!(read(&text, &mut warm), read(&text, &mut SchemaCache::default()));
            }
        }
        assert_eq!(warm.known.len(), 2);
        for bad in ["{\"id\":1}", "{\"id\":1}}x", "{\"id\":}}", ""] {
            let text = format!("{{\"schema\":{SCHEMA},\"payload\":{bad}");
            assert_eq!(Document::json(text.as_bytes(), &mut warm).unwrap_err().code, "undecodable");
        }
        for twice in ["{\"id\":1,\"id\":2}", "{\"a\":[{\"b\":1,\"c\":2,\"b\":1}]}"] {
            let text = format!("{{\"schema\":{SCHEMA},\"payload\":{twice}}}");
            for cache in [&mut warm, &mut SchemaCache::default()] {
                let fault = Document::json(text.as_bytes(), cache).unwrap_err();
                assert!(fault.code == "undecodable" && fault.detail.contains("stands twice"), "{fault:?}");
            }
        }
        let third = format!("{{\"schema\":{SCHEMA},\"payload\":1,\"x\":2}}");
        assert_eq!(read(&third, &mut warm).schema, None);
        assert_eq!(render::json(&read(&third, &mut warm).value), third);
    }

    #[test]
    fn spacing_and_order_of_a_wrapper_do_not_matter() {
        let mut cache = SchemaCache::default();
        let plain = read(&format!("{{\"schema\":{SCHEMA},\"payload\":{{\"id\":1}}}}"), &mut cache);
        for text in [
            format!("{{\"payload\":{{\"id\":1}},\"schema\":{SCHEMA}}}"),
            format!(" {{ \"schema\" : {SCHEMA} , \"payload\" : {{\"id\":1}} }} "),
        ] {
            assert_eq!(read(&text, &mut cache), plain);
        }
    }

    #[test]
    fn only_a_wrapper_is_unwrapped() {
        let mut cache = SchemaCache::default();
        for text in [
            r#"{"schema":"blue","payload":"text"}"#,
            r#"{"schema":"blue","payload":"text","id":3}"#,
            r#"{"payload":{"orderId":1},"eventType":"x"}"#,
            r#"{"payload":null,"eventType":"x","schema":"v2"}"#,
            r#"{"payload":{"orderId":1}}"#,
            r#"{"schema":{"type":"invoice"},"payload":1}"#,
            r#"{"schema":{},"payload":1}"#,
            r#"{"schema":null}"#,
        ] {
            assert_eq!(render::json(&read(text, &mut cache).value), text);
        }
        assert_eq!(read(r#"{"schema":null,"payload":null}"#, &mut cache), Document::null());
        assert_eq!(
            read(r#"{"payload":{"op":"c","after":{"id":1}}}"#, &mut cache).value,
            read(r#"{"op":"c","after":{"id":1}}"#, &mut cache).value
        );
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut cache = SchemaCache::default();
        for i in 0..CACHED_SCHEMAS + 10 {
            read(&format!("{{\"schema\":{},\"payload\":null}}", SCHEMA.replace("id", &format!("f{i}"))), &mut cache);
        }
        assert_eq!(cache.known.len(), CACHED_SCHEMAS);
    }
}
