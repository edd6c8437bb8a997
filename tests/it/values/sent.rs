//! Values as Debezium's JSON converter sends them, with their schema.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::broker::Rec;

/// The point (4.5, 52.25) in well-known binary, in hex.
pub const POINT: &str = "010100000000000000000012400000000000204a40";

/// A value on the wire and the schema of its field; without a schema for the whole record none.
pub struct Sent {
    schema: Option<Value>,
    pub wire: Value,
}

impl Sent {
    fn new(base: &str, name: Option<&str>, parameters: Value, wire: Value) -> Self {
        let mut schema = json!({ "type": base, "optional": true });
        if let Some(name) = name {
            schema["name"] = name.into();
            schema["version"] = 1.into();
        }
        if !parameters.is_null() {
            schema["parameters"] = parameters;
        }
        Self { schema: Some(schema), wire }
    }

    /// A create of a row that has this one column beside its id.
    pub fn record(&self, message_id: &str, id: usize, column: &str) -> Rec {
        let payload = json!({
            "before": null, "after": { "id": id, column: self.wire }, "op": "c", "ts_ms": 1_796_000_000_000_i64,
            "source": {
                "version": "3.6.1.Final", "connector": "postgresql", "name": "shop-pg", "ts_ms": 1_796_000_000_000_i64,
                "snapshot": "false", "db": "shop", "schema": "public", "table": "all_types", "txId": id, "lsn": id,
            },
        });
        let value = match &self.schema {
            None => payload,
            Some(schema) => {
                let mut field = schema.clone();
                field["field"] = column.into();
                let id = json!({ "type": "int64", "optional": false, "field": "id" });
                let row = |name: &str| json!({ "type": "struct", "optional": true, "field": name, "name": "all_types.Value", "fields": [id, field] });
                json!({
                    "schema": {
                        "type": "struct", "optional": false, "name": "all_types.Envelope",
                        "fields": [row("before"), row("after"), { "type": "string", "optional": false, "field": "op" },
                                   { "type": "int64", "optional": true, "field": "ts_ms" }],
                    },
                    "payload": payload,
                })
            }
        };
        Rec::new(message_id, value.to_string()).key(json!({ "id": id }).to_string())
    }
}

pub fn bare(wire: Value) -> Sent {
    Sent { schema: None, wire }
}

pub fn boolean(value: bool) -> Sent {
    Sent::new("boolean", None, Value::Null, value.into())
}

pub fn int(value: i64) -> Sent {
    Sent::new("int64", None, Value::Null, value.into())
}

/// `BIGINT UNSIGNED` in `long` mode, with the source column's type propagated.
pub fn unsigned(value: u64) -> Sent {
    let parameters = json!({ "__debezium.source.column.type": "BIGINT UNSIGNED" });
    Sent::new("int64", None, parameters, value.cast_signed().into())
}

pub fn double(wire: Value) -> Sent {
    Sent::new("double", None, Value::Null, wire)
}

pub fn real(wire: Value) -> Sent {
    Sent::new("float", None, Value::Null, wire)
}

pub fn text(value: &str) -> Sent {
    Sent::new("string", None, Value::Null, value.into())
}

pub fn bytes(value: &[u8]) -> Sent {
    Sent::new("bytes", None, Value::Null, STANDARD.encode(value).into())
}

fn unscaled(digits: &str) -> (String, usize) {
    let scale = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let number: i128 = digits.replace('.', "").parse().unwrap();
    (STANDARD.encode(number.to_be_bytes()), scale)
}

pub fn decimal(digits: &str) -> Sent {
    let (wire, scale) = unscaled(digits);
    let parameters = json!({ "scale": scale.to_string() });
    Sent::new("bytes", Some("org.apache.kafka.connect.data.Decimal"), parameters, wire.into())
}

pub fn any_scale(digits: &str) -> Sent {
    let (wire, scale) = unscaled(digits);
    let mut sent = Sent::new(
        "struct",
        Some("io.debezium.data.VariableScaleDecimal"),
        Value::Null,
        json!({ "scale": scale, "value": wire }),
    );
    sent.schema.as_mut().unwrap()["fields"] = json!([
        { "type": "int32", "optional": false, "field": "scale" },
        { "type": "bytes", "optional": false, "field": "value" },
    ]);
    sent
}

/// Bits as they are written, most significant first.
pub fn bits(bits: &str) -> Sent {
    let number = u128::from_str_radix(bits, 2).unwrap();
    let wire = STANDARD.encode(&number.to_le_bytes()[..bits.len().div_ceil(8)]);
    let parameters = json!({ "length": bits.len().to_string() });
    Sent::new("bytes", Some("io.debezium.data.Bits"), parameters, wire.into())
}

pub fn date(days: i64) -> Sent {
    Sent::new("int32", Some("io.debezium.time.Date"), Value::Null, days.into())
}

pub fn time(micros: i64) -> Sent {
    Sent::new("int64", Some("io.debezium.time.MicroTime"), Value::Null, micros.into())
}

pub fn nano_time(nanos: i64) -> Sent {
    Sent::new("int64", Some("io.debezium.time.NanoTime"), Value::Null, nanos.into())
}

pub fn timestamp(micros: i64) -> Sent {
    Sent::new("int64", Some("io.debezium.time.MicroTimestamp"), Value::Null, micros.into())
}

pub fn nano_timestamp(nanos: i64) -> Sent {
    Sent::new("int64", Some("io.debezium.time.NanoTimestamp"), Value::Null, nanos.into())
}

pub fn duration(micros: i64) -> Sent {
    Sent::new("int64", Some("io.debezium.time.MicroDuration"), Value::Null, micros.into())
}

/// A text with a semantic name of Debezium's.
pub fn named(name: &str, value: &str) -> Sent {
    Sent::new("string", Some(&format!("io.debezium.{name}")), Value::Null, value.into())
}

pub fn zoned(value: &str) -> Sent {
    named("time.ZonedTimestamp", value)
}

pub fn json_text(value: &str) -> Sent {
    named("data.Json", value)
}

pub fn geometry(kind: &str, wkb: &str, srid: Option<i64>) -> Sent {
    let bytes: Vec<u8> =
        (0..wkb.len()).step_by(2).map(|at| u8::from_str_radix(&wkb[at..at + 2], 16).unwrap()).collect();
    let wire = json!({ "wkb": STANDARD.encode(bytes), "srid": srid });
    let mut sent = Sent::new("struct", Some(&format!("io.debezium.data.geometry.{kind}")), Value::Null, wire);
    sent.schema.as_mut().unwrap()["fields"] = json!([
        { "type": "bytes", "optional": false, "field": "wkb" },
        { "type": "int32", "optional": true, "field": "srid" },
    ]);
    sent
}

/// An array of what these elements are; the schema is the first one's.
pub fn array(items: Vec<Sent>) -> Sent {
    let of = items[0].schema.clone().unwrap();
    let wire = items.into_iter().map(|item| item.wire).collect::<Vec<_>>().into();
    let mut sent = Sent::new("array", None, Value::Null, wire);
    sent.schema.as_mut().unwrap()["items"] = of;
    sent
}

/// A null of the kind that the other is.
pub fn none(of: Sent) -> Sent {
    Sent { wire: Value::Null, ..of }
}

/// A struct without a meaning.
pub fn struct_of(wire: Value) -> Sent {
    let mut sent = Sent::new("struct", Some("shop.Address"), Value::Null, wire);
    sent.schema.as_mut().unwrap()["fields"] = json!([
        { "type": "string", "optional": true, "field": "street" },
        { "type": "int32", "optional": true, "field": "number" },
    ]);
    sent
}
