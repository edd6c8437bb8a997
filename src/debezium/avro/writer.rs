//! A writer's schema, compiled once: the plan to read bytes by, and what the values mean.
//!
//! `apache-avro` decides what the schema is: types, names, unions, references. It keeps no attributes of primitive
//! types, and there the converters write Connect's semantic names (`connect.name`, `connect.parameters`); so the JSON
//! text is walked beside the parsed schema for these alone.

use std::collections::HashMap;
use std::sync::Arc;

use apache_avro::schema::{InnerDecimalSchema, RecordSchema, UuidSchema};
use compact_str::CompactString;
use serde_json::{Map, Value as Json};

use super::names;
use super::plan::{FieldStep, Plan, Step, StepId};
use super::read::Extent;
use crate::debezium::document::Document;
use crate::debezium::event::Fault;
use crate::debezium::schema::{Base, Field, Kind, Schema, kind_of, struct_kind};
use crate::debezium::temporal::TimeUnit;

/// Steps and types that one schema may need, references expanded.
const MOST_NODES: usize = 50_000;
/// Types around a type.
const MOST_DEPTH: usize = 64;

/// A schema from a registry, ready to read with. Two are equal that read the same bytes as the same.
#[derive(Debug, PartialEq)]
pub struct WriterSchema {
    name: Option<String>,
    plan: Plan,
    meaning: Arc<Schema>,
}

impl WriterSchema {
    /// From the text of a schema and of those that it refers to, in any order.
    ///
    /// # Errors
    /// `bad_schema`: not Avro, a name that no text defines, or a schema of absurd size.
    pub fn compile(schema: &str, references: &[String]) -> Result<Self, Fault> {
        names::accept_any();
        let json = read_json(schema)?;
        let reference_json = references.iter().map(|text| read_json(text)).collect::<Result<Vec<_>, _>>()?;
        let texts: Vec<String> = reference_json.iter().map(Json::to_string).collect();
        let (parsed, parsed_references) = apache_avro::Schema::parse_str_with_list(&json.to_string(), &texts)
            .map_err(|error| bad(format!("no avro schema: {error}")))?;
        let mut compiler = Compiler::default();
        compiler.define(&parsed, &json);
        for (schema, json) in parsed_references.iter().zip(&reference_json) {
            compiler.define(schema, json);
        }
        let root = compiler.step(&parsed, &json, 0)?;
        let meaning = compiler.meaning(&parsed, &json)?;
        let name = parsed.name().map(|name| name.fullname(None));
        let mut plan = Plan { steps: compiler.steps, root };
        plan.mark_unused().map_err(|_| bad("the schema is too big"))?;
        Ok(Self { name, plan, meaning: Arc::new(meaning) })
    }

    /// The full name of a record, an enum or a fixed.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether its name is the one that Debezium gives the schemas of this topic: `TOPIC.Envelope`, `.Key`, `.Value`.
    pub fn is_of(&self, topic: &str) -> bool {
        // Characters that Avro does not allow may have been replaced.
        let same = |(a, b): (char, char)| a == b || b == '_' && !a.is_ascii_alphanumeric();
        let space = self.name().and_then(|name| name.rsplit_once('.')).map_or("", |(space, _)| space);
        space.len() == topic.len() && topic.chars().zip(space.chars()).all(same)
    }

    /// Reads a value that takes all the bytes.
    ///
    /// # Errors
    /// `undecodable`: the bytes are not of this schema.
    pub fn read(&self, bytes: &[u8]) -> Result<Document, Fault> {
        self.read_as(bytes, Extent::Whole)
    }

    /// The same, perhaps without what no event is made of.
    pub(in crate::debezium) fn read_as(&self, bytes: &[u8], extent: Extent) -> Result<Document, Fault> {
        Ok(Document { value: self.plan.read(bytes, extent)?, schema: Some(Arc::clone(&self.meaning)) })
    }
}

fn bad(detail: impl Into<String>) -> Fault {
    Fault::new("bad_schema", detail)
}

/// The schema without what never decides about a byte. The crate refuses defaults that do not fit their type; a
/// record is readable all the same.
fn read_json(text: &str) -> Result<Json, Fault> {
    fn strip(json: &mut Json) {
        match json {
            Json::Object(map) => {
                for ignored in ["default", "aliases", "doc"] {
                    map.remove(ignored);
                }
                map.iter_mut().filter(|(key, _)| *key != "connect.parameters").for_each(|(_, inner)| strip(inner));
            }
            Json::Array(items) => items.iter_mut().for_each(strip),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }
    let mut json = match serde_json::from_str(text) {
        Ok(json) => json,
        // Confluent's registry hands a bare primitive out without its quotes.
        Err(_) if text.chars().all(|c| c.is_ascii_lowercase()) && !text.is_empty() => Json::from(text),
        Err(error) => return Err(bad(format!("no avro schema: {error}"))),
    };
    strip(&mut json);
    Ok(json)
}

#[derive(Default)]
struct Compiler<'a> {
    /// Definitions by full name.
    defined: HashMap<String, (&'a apache_avro::Schema, &'a Json)>,
    steps: Vec<Step>,
    /// Steps of named types.
    named: HashMap<String, StepId>,
    /// Named types around the one whose meaning is being compiled.
    around: Vec<String>,
    nodes: usize,
}

impl<'a> Compiler<'a> {
    /// Notes every named type of a text.
    fn define(&mut self, schema: &'a apache_avro::Schema, json: &'a Json) {
        if let Some(name) = schema.name() {
            if matches!(schema, apache_avro::Schema::Ref { .. }) {
                return;
            }
            self.defined.insert(name.fullname(None), (schema, json));
        }
        for_inner(schema, json, |schema, json| self.define(schema, json));
    }

    fn definition(&self, name: &str) -> Result<(&'a apache_avro::Schema, &'a Json), Fault> {
        self.defined.get(name).copied().ok_or_else(|| bad(format!("no text defines the type {name}")))
    }

    fn count(&mut self) -> Result<(), Fault> {
        self.nodes += 1;
        if self.nodes > MOST_NODES { Err(bad("the schema is too big")) } else { Ok(()) }
    }

    fn push(&mut self, step: Step) -> Result<StepId, Fault> {
        self.count()?;
        self.steps.push(step);
        StepId::try_from(self.steps.len() - 1).map_err(|_| bad("the schema is too big"))
    }

    fn step(&mut self, schema: &'a apache_avro::Schema, json: &'a Json, depth: usize) -> Result<StepId, Fault> {
        use apache_avro::Schema as Avro;
        if depth > MOST_DEPTH {
            return Err(bad("the schema is nested too deep"));
        }
        let step = match schema {
            Avro::Ref { name } => {
                let name = name.fullname(None);
                if let Some(step) = self.named.get(&name) {
                    return Ok(*step);
                }
                let (schema, json) = self.definition(&name)?;
                return self.step(schema, json, depth + 1);
            }
            Avro::Record(record) => return self.record_step(record, json, depth),
            Avro::Union(union) => return self.union_step(union.variants(), json, depth),
            Avro::Array(array) => {
                let items_json = inner(json, "items");
                let items = self.step(&array.items, items_json, depth + 1)?;
                match map_entry(&array.items) {
                    Some(text_keys) => Step::Entries { record: items, text_keys },
                    None => Step::Array(items),
                }
            }
            Avro::Map(map) => Step::Map(self.step(&map.types, inner(json, "values"), depth + 1)?),
            Avro::Enum(symbols) => Step::Enum(symbols.symbols.iter().map(CompactString::from).collect()),
            Avro::Fixed(fixed) | Avro::Duration(fixed) => Step::Fixed(fixed.size),
            Avro::Decimal(decimal) => match &decimal.inner {
                InnerDecimalSchema::Bytes => Step::Bytes,
                InnerDecimalSchema::Fixed(fixed) => Step::Fixed(fixed.size),
            },
            Avro::Uuid(UuidSchema::String) | Avro::String => Step::Text,
            Avro::Uuid(UuidSchema::Bytes) | Avro::Bytes | Avro::BigDecimal => Step::Bytes,
            Avro::Uuid(UuidSchema::Fixed(fixed)) => Step::Fixed(fixed.size),
            Avro::Null => Step::Null,
            Avro::Boolean => Step::Bool,
            Avro::Float => Step::Float,
            Avro::Double => Step::Double,
            Avro::Int | Avro::Date | Avro::TimeMillis => Step::Int,
            Avro::Long
            | Avro::TimeMicros
            | Avro::TimestampMillis
            | Avro::TimestampMicros
            | Avro::TimestampNanos
            | Avro::LocalTimestampMillis
            | Avro::LocalTimestampMicros
            | Avro::LocalTimestampNanos => Step::Long,
        };
        let id = self.push(step)?;
        if let Some(name) = schema.name() {
            self.named.insert(name.fullname(None), id);
        }
        Ok(id)
    }

    /// The step is known by its name before its fields are: one of them may be of the same type.
    fn record_step(&mut self, record: &'a RecordSchema, json: &'a Json, depth: usize) -> Result<StepId, Fault> {
        let id = self.push(Step::Pending)?;
        self.named.insert(record.name.fullname(None), id);
        let mut fields = Vec::with_capacity(record.fields.len());
        for (field, json) in record.fields.iter().zip(field_types(json)) {
            let step = self.step(&field.schema, json, depth + 1)?;
            fields.push(FieldStep { name: CompactString::from(&field.name), step, unused: false });
        }
        self.steps[id as usize] = Step::Record(fields);
        Ok(id)
    }

    fn union_step(
        &mut self,
        variants: &'a [apache_avro::Schema],
        json: &'a Json,
        depth: usize,
    ) -> Result<StepId, Fault> {
        let branches = branches(json);
        let null_at = variants.iter().position(|variant| matches!(variant, apache_avro::Schema::Null));
        if let (Some(null_at), [first, second]) = (null_at, variants) {
            let (inner, at) = if null_at == 0 { (second, 1) } else { (first, 0) };
            let inner = self.step(inner, branches.get(at).unwrap_or(&Json::Null), depth + 1)?;
            return self.push(Step::Optional { null_branch: i64::from(null_at == 1), inner });
        }
        let mut steps = Vec::with_capacity(variants.len());
        for (variant, json) in variants.iter().zip(branches) {
            let meaning = Schema { optional: true, ..self.meaning(variant, json)? };
            steps.push((self.step(variant, json, depth + 1)?, meaning));
        }
        self.push(Step::Union(steps))
    }

    /// What the values mean, in Connect's terms.
    fn meaning(&mut self, schema: &'a apache_avro::Schema, json: &'a Json) -> Result<Schema, Fault> {
        use apache_avro::Schema as Avro;
        self.count()?;
        let attributes = Attributes::of(json);
        let kind = match schema {
            Avro::Union(union) => {
                let branches = branches(json);
                let mut real = union.variants().iter().zip(branches).filter(|(schema, _)| **schema != Avro::Null);
                let optional = union.variants().iter().any(|variant| matches!(variant, Avro::Null));
                return Ok(match (real.next(), real.next()) {
                    (Some((schema, json)), None) => Schema { optional, ..self.meaning(schema, json)? },
                    // Applied by the branch, while reading.
                    _ => Schema { optional: true, kind: Kind::Any },
                });
            }
            Avro::Ref { name } => {
                let name = name.fullname(None);
                let (schema, json) = self.definition(&name)?;
                if self.around.contains(&name) {
                    // A type inside itself has no finite tree; its values stay as they came.
                    return Ok(Schema { optional: true, kind: Kind::Any });
                }
                return self.meaning(schema, json);
            }
            Avro::Record(record) => {
                let full_name = record.name.fullname(None);
                self.around.push(full_name.clone());
                if self.around.len() > MOST_DEPTH {
                    return Err(bad("the schema is nested too deep"));
                }
                let mut fields = Vec::with_capacity(record.fields.len());
                for (field, json) in record.fields.iter().zip(field_types(json)) {
                    fields.push(Field { name: field.name.as_str().into(), schema: self.meaning(&field.schema, json)? });
                }
                self.around.pop();
                struct_kind(Some(attributes.name().unwrap_or(&full_name)), fields, |name| attributes.parameter(name))
            }
            Avro::Array(array) => {
                let items = self.meaning(&array.items, inner(json, "items"))?;
                match (map_entry(&array.items), items.kind) {
                    (Some(_), Kind::Struct(fields)) => map_kind(fields)?,
                    (_, kind) => Kind::Array(Box::new(Schema { optional: items.optional, kind })),
                }
            }
            Avro::Map(map) => Kind::Map {
                keys: Box::new(Schema { optional: false, kind: Kind::Text }),
                values: Box::new(self.meaning(&map.types, inner(json, "values"))?),
            },
            Avro::Null => Kind::Any,
            scalar => attributes.kind(scalar)?,
        };
        Ok(Schema { optional: matches!(schema, Avro::Null), kind })
    }
}

/// Connect's attributes of a type.
struct Attributes<'a>(Option<&'a Map<String, Json>>);

impl<'a> Attributes<'a> {
    /// `{"type": {"type": "string", …}}` is the inner type.
    fn of(json: &'a Json) -> Self {
        Self(unwrapped(json).as_object())
    }

    fn name(&self) -> Option<&'a str> {
        self.0?.get("connect.name")?.as_str()
    }

    fn parameter(&self, name: &str) -> Option<String> {
        Some(match self.0?.get("connect.parameters")?.get(name)? {
            Json::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    fn kind(&self, schema: &apache_avro::Schema) -> Result<Kind, Fault> {
        use apache_avro::Schema as Avro;
        let base = match schema {
            Avro::Boolean => Base::Bool,
            Avro::Float => Base::Single,
            Avro::Double => Base::Float,
            Avro::String | Avro::Enum(_) | Avro::Uuid(UuidSchema::String) => Base::Text,
            Avro::Bytes
            | Avro::Fixed(_)
            | Avro::Duration(_)
            | Avro::Decimal(_)
            | Avro::BigDecimal
            | Avro::Uuid(UuidSchema::Bytes | UuidSchema::Fixed(_)) => Base::Bytes,
            _ => Base::Int,
        };
        if self.name().is_some() || self.0.is_some_and(|attributes| attributes.contains_key("connect.parameters")) {
            return kind_of(base, self.name(), |name| self.parameter(name));
        }
        Ok(match schema {
            // Avro's own logical types, from other producers.
            Avro::Decimal(decimal) => {
                Kind::Decimal { scale: i32::try_from(decimal.scale).map_err(|_| bad("a decimal's scale is too big"))? }
            }
            Avro::Date => Kind::Date,
            Avro::TimeMillis => Kind::Time(TimeUnit::Millis),
            Avro::TimeMicros => Kind::Time(TimeUnit::Micros),
            Avro::TimestampMillis => Kind::Instant(TimeUnit::Millis),
            Avro::TimestampMicros => Kind::Instant(TimeUnit::Micros),
            Avro::TimestampNanos => Kind::Instant(TimeUnit::Nanos),
            Avro::LocalTimestampMillis => Kind::Timestamp(TimeUnit::Millis),
            Avro::LocalTimestampMicros => Kind::Timestamp(TimeUnit::Micros),
            Avro::LocalTimestampNanos => Kind::Timestamp(TimeUnit::Nanos),
            Avro::Uuid(_) => Kind::Uuid,
            _ => kind_of(base, None, |_| None)?,
        })
    }
}

fn unwrapped(json: &Json) -> &Json {
    match json.get("type") {
        Some(inner @ Json::Object(_)) if json.get("connect.name").is_none() => unwrapped(inner),
        _ => json,
    }
}

fn inner<'a>(json: &'a Json, name: &str) -> &'a Json {
    unwrapped(json).get(name).unwrap_or(&Json::Null)
}

fn field_types(json: &Json) -> impl Iterator<Item = &Json> {
    let fields = unwrapped(json).get("fields").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    fields.iter().map(|field| field.get("type").unwrap_or(&Json::Null))
}

fn branches(json: &Json) -> &[Json] {
    let union = if json.is_array() { Some(json) } else { json.get("type") };
    union.and_then(Json::as_array).map_or(&[][..], Vec::as_slice)
}

fn for_inner<'a>(
    schema: &'a apache_avro::Schema,
    json: &'a Json,
    mut each: impl FnMut(&'a apache_avro::Schema, &'a Json),
) {
    use apache_avro::Schema as Avro;
    match schema {
        Avro::Record(record) => {
            record.fields.iter().zip(field_types(json)).for_each(|(field, json)| each(&field.schema, json));
        }
        Avro::Union(union) => union.variants().iter().zip(branches(json)).for_each(|(schema, json)| each(schema, json)),
        Avro::Array(array) => each(&array.items, inner(json, "items")),
        Avro::Map(map) => each(&map.types, inner(json, "values")),
        _ => {}
    }
}

/// Connect's map as an array of `MapEntry` records; says whether its keys are texts.
fn map_entry(items: &apache_avro::Schema) -> Option<bool> {
    use apache_avro::Schema as Avro;
    let Avro::Record(record) = items else { return None };
    let marked = record.attributes.get("connect.internal.type").and_then(Json::as_str) == Some("MapEntry");
    let [key, value] = record.fields.as_slice() else { return None };
    if !(marked || record.name.name() == "MapEntry") || key.name != "key" || value.name != "value" {
        return None;
    }
    Some(match &key.schema {
        Avro::String => true,
        Avro::Union(union) => union.variants().iter().all(|v| matches!(v, Avro::Null | Avro::String)),
        _ => false,
    })
}

fn map_kind(fields: Vec<Field>) -> Result<Kind, Fault> {
    match <[Field; 2]>::try_from(fields) {
        Ok([key, value]) => Ok(Kind::Map { keys: Box::new(key.schema), values: Box::new(value.schema) }),
        Err(_) => Err(bad("a map entry that is no pair")),
    }
}
