//! Where the id of a record's schema stands, by serialiser.
//!
//! | serialiser | id |
//! |---|---|
//! | Confluent; Apicurio with `as-confluent` and `use-id=contentId` | `00`, 4 bytes |
//! | Apicurio with `as-confluent` | `00`, 4 bytes, global id |
//! | Apicurio 2 with `headers.enabled=false` | `00`, 8 bytes, global id |
//! | Apicurio with headers | `apicurio.value.globalId` or `.contentId` (key: `apicurio.key.…`), 8 bytes; bare Avro |
//!
//! Ids are big-endian and begin at 1, so a 4-byte id of 0 is the upper half of an 8-byte one, and an 8-byte id
//! beyond 2^32 is a 4-byte one with the record's first bytes behind it.

use super::{SchemaId, SchemaRef, Width};
use crate::record::Record;

/// How the records of a pipeline's topics name their schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvroOptions {
    pub framing: Framing,
    /// What the id in front of the bytes means.
    pub ids: IdKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Header, 8 or 4 bytes, as the record shows.
    Any,
    /// The header alone: bytes without one are no Avro.
    Header,
    FourByte,
    EightByte,
}

/// Whose number an id in front of the bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    Confluent,
    Global,
    Content,
    /// The registry finds out.
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Key,
    Value,
}

/// What stands at the front of a record's key or value.
#[derive(Debug, PartialEq, Eq)]
pub enum Framed<'a> {
    /// No sign of Avro.
    No,
    Avro {
        schema: SchemaRef,
        body: &'a [u8],
    },
    /// It looks like Avro, but the configuration does not fit it: nothing is known to be wrong with the record.
    Misfit(String),
}

/// Finds the id. Without `options` Avro is only recognised.
pub fn locate<'a>(record: &Record, part: Part, bytes: &'a [u8], options: Option<AvroOptions>) -> Framed<'a> {
    let Some(options) = options else {
        return recognise(record, part, bytes);
    };
    match (header_id(record, part), options.framing) {
        (Some(Err(why)), _) => return Framed::Misfit(why),
        (Some(Ok(id)), Framing::Any | Framing::Header) => {
            return Framed::Avro { schema: SchemaRef::Id(id), body: bytes };
        }
        (Some(Ok(id)), Framing::FourByte | Framing::EightByte) => {
            return Framed::Misfit(format!(
                "{part} carries Apicurio's id in a header ({id}): set `framing = \"auto\"` in [registry]"
            ));
        }
        (None, Framing::Header) => return Framed::No,
        (None, Framing::Any | Framing::FourByte | Framing::EightByte) => {}
    }
    let Some(numbers) = Numbers::of(bytes) else {
        return Framed::No;
    };
    let readings = || {
        let Numbers { four, eight } = numbers;
        let eight = eight.map_or_else(|| "too short for one".to_owned(), |id| id.to_string());
        format!("read as 4 bytes the schema id of {part} is {four}, read as 8 bytes it is {eight}")
    };
    let at = |number: u64, width: Width| match (options.ids, width) {
        (IdKind::Confluent, Width::Four) => u32::try_from(number).ok().map(SchemaId::Confluent),
        (IdKind::Global, _) | (IdKind::Confluent, Width::Eight) => Some(SchemaId::Global(number)),
        (IdKind::Content, _) => Some(SchemaId::Content(number)),
        (IdKind::Open, _) => None,
    };
    let at = |number: u64, width: Width| at(number, width).map_or(SchemaRef::Number { number, width }, SchemaRef::Id);
    match (options.framing, numbers.four_bytes_wide(), numbers.eight_bytes_wide()) {
        (Framing::EightByte, _, Some(id)) => Framed::Avro { schema: at(id, Width::Eight), body: &bytes[9..] },
        (Framing::Any, _, Some(id)) if options.ids != IdKind::Confluent => {
            Framed::Avro { schema: at(id, Width::Eight), body: &bytes[9..] }
        }
        (Framing::Any | Framing::FourByte, Some(id), _) => {
            Framed::Avro { schema: at(id, Width::Four), body: &bytes[5..] }
        }
        (Framing::EightByte, _, _) => Framed::Misfit(format!(
            "{}: looks like 4-byte ids, set `framing = \"4-byte\"` in [registry], or `flavour = \"confluent\"`; {}",
            readings(),
            part.or_no_avro()
        )),
        (Framing::Any | Framing::FourByte | Framing::Header, _, _) => Framed::Misfit(format!(
            "{}: looks like 8-byte ids, set `flavour = \"apicurio\"` and `framing = \"8-byte\"` in [registry]; {}",
            readings(),
            part.or_no_avro()
        )),
    }
}

/// Registries count from 1; this many schemas are in none.
const MOST_ID: u64 = i32::MAX as u64;

/// What stands after the byte 0, where an id of either width would.
#[derive(Clone, Copy)]
struct Numbers {
    four: u32,
    /// If there are as many bytes.
    eight: Option<u64>,
}

impl Numbers {
    fn of(bytes: &[u8]) -> Option<Self> {
        let [0, rest @ ..] = bytes else { return None };
        let four = u32::from_be_bytes(*rest.first_chunk()?);
        Some(Self { four, eight: rest.first_chunk().map(|eight| u64::from_be_bytes(*eight)) })
    }

    /// The id of four bytes, if a registry could have given it.
    fn four_bytes_wide(self) -> Option<u64> {
        Some(u64::from(self.four)).filter(|id| (1..=MOST_ID).contains(id))
    }

    fn eight_bytes_wide(self) -> Option<u64> {
        self.eight.filter(|id| (1..=MOST_ID).contains(id))
    }
}

/// Avro where no registry is configured. A body that merely begins with 00 is no sign of it: an id must stand there
/// that a registry could have given, and a record that names its message in a header is an outbox's, whose payload may
/// be any bytes.
fn recognise<'a>(record: &Record, part: Part, bytes: &[u8]) -> Framed<'a> {
    let plausible = Numbers::of(bytes)
        .is_some_and(|numbers| numbers.four_bytes_wide().or_else(|| numbers.eight_bytes_wide()).is_some());
    let framed = plausible && record.header_values("id").next().is_none();
    if header_id(record, part).is_some() {
        return Framed::Misfit(format!("{part} is Avro, its schema named in a header: set `url` in [registry]"));
    }
    if framed {
        return Framed::Misfit(format!("{part} looks like Avro: set `url` in [registry]; {}", part.or_no_avro()));
    }
    Framed::No
}

/// The id in Apicurio's headers; an error says why there is none that can be used.
fn header_id(record: &Record, part: Part) -> Option<Result<SchemaId, String>> {
    let names = match part {
        Part::Key => ["apicurio.key.globalId", "apicurio.key.contentId", "apicurio.key.artifactId"],
        Part::Value => ["apicurio.value.globalId", "apicurio.value.contentId", "apicurio.value.artifactId"],
    };
    let id = |name: &'static str| {
        let bytes = record.header_values(name).flatten().next()?;
        Some(match <[u8; 8]>::try_from(bytes) {
            Ok(id) => Ok(u64::from_be_bytes(id)),
            Err(_) => Err(format!("header {name} has {} bytes, not 8", bytes.len())),
        })
    };
    if record.headers.is_empty() {
        return None;
    }
    if let Some(global) = id(names[0]) {
        return Some(global.map(SchemaId::Global));
    }
    if let Some(content) = id(names[1]) {
        return Some(content.map(SchemaId::Content));
    }
    record.header_values(names[2]).next().map(|_| {
        Err(format!(
            "{part} names its schema by artifact ({}), not by id; set `apicurio.registry.use-id` in the converter",
            names[2]
        ))
    })
}

impl Part {
    /// The way out for bytes that merely look like Avro.
    pub(in crate::debezium) fn or_no_avro(self) -> &'static str {
        match self {
            Self::Key => "if the key is no Avro, set `key_format = \"bytes\"` (or \"json\") in [decode]",
            Self::Value => "if the value is no Avro, set `value_format = \"bytes\"` (or \"json\") in [decode]",
        }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key => "the key",
            Self::Value => "the value",
        })
    }
}
