//! Kafka Connect schemas, compiled: what the JSON converter repeats in every record, read once.
//!
//! Only what decides about a value is kept. Defaults are not: a null that is there is NULL, and a field that
//! is not there is unknown; putting the default in would overwrite data (KAFKA-8713, DBZ-schema defaults).

use super::event::Fault;
use super::structured::Structured;
use super::temporal::TimeUnit;
use super::value::{Row, Value};
use compact_str::CompactString;

/// A type, and whether null is one of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    pub optional: bool,
    pub kind: Kind,
}

/// What a value means.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Bool,
    Int,
    /// `BIGINT UNSIGNED` sent as `int64` (`bigint.unsigned.handling.mode=long`), known from the propagated
    /// `__debezium.source.column.type`: negative values are those from 2^63 upwards.
    Unsigned,
    /// float32: the number that its shortest text names, whoever wrote it with how many digits.
    Single,
    Float,
    Text,
    Bytes,
    Decimal {
        scale: i32,
    },
    VariableScaleDecimal,
    Date,
    DateText,
    Time(TimeUnit),
    TimeText,
    ZonedTime,
    Timestamp(TimeUnit),
    /// Avro's own `timestamp-*`: an instant, counted from 1970 in UTC.
    Instant(TimeUnit),
    TimestampText,
    ZonedTimestamp,
    Duration(TimeUnit),
    Interval,
    /// A date or time in parts.
    Structured(Structured),
    Bits {
        length: Option<usize>,
    },
    Json,
    Uuid,
    Geometry,
    Array(Box<Schema>),
    Map {
        keys: Box<Schema>,
        values: Box<Schema>,
    },
    Struct(Vec<Field>),
    /// No meaning beyond the value itself: a union of several types, a type inside itself.
    Any,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub name: CompactString,
    pub schema: Schema,
}

impl Schema {
    /// From the JSON form that Connect's `JsonConverter` writes.
    pub fn compile(schema: &Row) -> Result<Self, Fault> {
        let optional = matches!(schema.get("optional"), Some(Value::Bool(true)));
        Ok(Self { optional, kind: kind(schema)? })
    }

    /// The field of a struct; the payload's fields mostly come in the schema's order, so `hint` is tried first.
    pub fn field(&self, hint: usize, name: &str) -> Option<&Schema> {
        let Kind::Struct(fields) = &self.kind else { return None };
        let at_hint = fields.get(hint).filter(|field| &*field.name == name);
        at_hint.or_else(|| fields.iter().find(|field| &*field.name == name)).map(|field| &field.schema)
    }
}

/// `column.propagate.source.type` and `datatype.propagate.source.type` put the column's own type here.
const COLUMN_TYPE: &str = "__debezium.source.column.type";

/// The meaning by Connect type, semantic name and parameters. A name that is not known here means what its plain
/// type means, as Connect asks of consumers.
pub fn kind_of(base: Base, name: Option<&str>, parameter: impl Fn(&str) -> Option<String>) -> Result<Kind, Fault> {
    let number = |key: &str| parameter(key).and_then(|text| text.parse::<i32>().ok());
    Ok(match (name.unwrap_or_default(), base) {
        ("org.apache.kafka.connect.data.Decimal", Base::Bytes) => {
            let scale = number("scale").ok_or_else(|| Fault::new("bad_schema", "a decimal without a scale"))?;
            Kind::Decimal { scale }
        }
        ("io.debezium.time.Date" | "org.apache.kafka.connect.data.Date", Base::Int) => Kind::Date,
        ("io.debezium.time.Time" | "org.apache.kafka.connect.data.Time", Base::Int) => Kind::Time(TimeUnit::Millis),
        ("io.debezium.time.MicroTime", Base::Int) => Kind::Time(TimeUnit::Micros),
        ("io.debezium.time.NanoTime", Base::Int) => Kind::Time(TimeUnit::Nanos),
        ("io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp", Base::Int) => {
            Kind::Timestamp(TimeUnit::Millis)
        }
        ("io.debezium.time.MicroTimestamp", Base::Int) => Kind::Timestamp(TimeUnit::Micros),
        ("io.debezium.time.NanoTimestamp", Base::Int) => Kind::Timestamp(TimeUnit::Nanos),
        ("io.debezium.time.MicroDuration", Base::Int) => Kind::Duration(TimeUnit::Micros),
        ("io.debezium.time.NanoDuration", Base::Int) => Kind::Duration(TimeUnit::Nanos),
        ("io.debezium.time.ZonedTimestamp", Base::Text) => Kind::ZonedTimestamp,
        ("io.debezium.time.ZonedTime", Base::Text) => Kind::ZonedTime,
        ("io.debezium.time.IsoDate", Base::Text) => Kind::DateText,
        ("io.debezium.time.IsoTime", Base::Text) => Kind::TimeText,
        ("io.debezium.time.IsoTimestamp", Base::Text) => Kind::TimestampText,
        ("io.debezium.time.Interval", Base::Text) => Kind::Interval,
        ("io.debezium.data.Bits", Base::Bytes) => {
            // The length of a `bit varying` is what it may grow to.
            let varying = parameter(COLUMN_TYPE).is_some_and(|column| column.to_ascii_uppercase().contains("VAR"));
            let length = number("length").filter(|_| !varying);
            Kind::Bits { length: length.and_then(|length| usize::try_from(length).ok()) }
        }
        ("io.debezium.data.Json", Base::Text) => Kind::Json,
        ("io.debezium.data.Uuid", Base::Text) => Kind::Uuid,
        // Year is an integer; an enum, a set and XML are the text that came, never checked against `allowed`,
        // which an ALTER TABLE may have changed since.
        (_, Base::Int) if unsigned(parameter(COLUMN_TYPE).as_deref()) => Kind::Unsigned,
        (_, Base::Bool) => Kind::Bool,
        (_, Base::Int) => Kind::Int,
        (_, Base::Single) => Kind::Single,
        (_, Base::Float) => Kind::Float,
        (_, Base::Text) => Kind::Text,
        (_, Base::Bytes) => Kind::Bytes,
    })
}

/// Structs with a meaning of their own.
pub fn struct_kind(name: Option<&str>, fields: Vec<Field>, parameter: impl Fn(&str) -> Option<String>) -> Kind {
    let name = name.unwrap_or_default();
    if let Some(structured) = Structured::of(name, parameter(COLUMN_TYPE).as_deref()) {
        return Kind::Structured(structured);
    }
    match name {
        "io.debezium.data.VariableScaleDecimal" => Kind::VariableScaleDecimal,
        "io.debezium.data.geometry.Geometry"
        | "io.debezium.data.geometry.Geography"
        | "io.debezium.data.geometry.Point" => Kind::Geometry,
        _ => Kind::Struct(fields),
    }
}

/// Connect's scalar types, those of one JSON form together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    Bool,
    Int,
    Single,
    Float,
    Text,
    Bytes,
}

fn unsigned(column_type: Option<&str>) -> bool {
    let column_type = column_type.unwrap_or_default().to_ascii_uppercase();
    column_type.contains("BIGINT") && column_type.contains("UNSIGNED") || column_type == "SERIAL"
}

fn kind(schema: &Row) -> Result<Kind, Fault> {
    let name = text(schema, "name");
    let parameter = |key: &str| match schema.get("parameters") {
        Some(Value::Struct(parameters)) => parameters.get(key)?.as_text().map(|text| text.into_owned()),
        _ => None,
    };
    let base = match text(schema, "type") {
        Some("boolean") => Base::Bool,
        Some("int8" | "int16" | "int32" | "int64") => Base::Int,
        Some("float" | "float32") => Base::Single,
        Some("double" | "float64") => Base::Float,
        Some("string") => Base::Text,
        Some("bytes") => Base::Bytes,
        Some("array") => return Ok(Kind::Array(inner(schema, "items")?)),
        Some("map") => {
            return Ok(Kind::Map { keys: inner(schema, "keys")?, values: inner(schema, "values")? });
        }
        Some("struct") => return Ok(struct_kind(name, fields(schema)?, parameter)),
        Some(_) => return Err(Fault::new("bad_schema", "an unknown connect type")),
        None => return Err(Fault::new("bad_schema", "a schema without a type")),
    };
    kind_of(base, name, parameter)
}

fn fields(schema: &Row) -> Result<Vec<Field>, Fault> {
    let Some(Value::Array(fields)) = schema.get("fields") else {
        return Err(Fault::new("bad_schema", "a struct without fields"));
    };
    fields
        .iter()
        .map(|field| match field {
            Value::Struct(field) => {
                let name = text(field, "field").ok_or_else(|| Fault::new("bad_schema", "a field without a name"))?;
                Ok(Field { name: name.into(), schema: Schema::compile(field)? })
            }
            _ => Err(Fault::new("bad_schema", "a field that is no schema")),
        })
        .collect()
}

fn inner(schema: &Row, name: &str) -> Result<Box<Schema>, Fault> {
    match schema.get(name) {
        Some(Value::Struct(inner)) => Ok(Box::new(Schema::compile(inner)?)),
        _ => Err(Fault::new("bad_schema", format!("a collection without {name}"))),
    }
}

fn text<'a>(schema: &'a Row, name: &str) -> Option<&'a str> {
    match schema.get(name) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}
