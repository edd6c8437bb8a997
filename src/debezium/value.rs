//! Decoded values: what a column held, in the exact text of its type.

use compact_str::CompactString;

/// A value of a field. Numbers beyond `i64`, decimals and all temporal types are kept as canonical
/// text (the forms of `inspect`, see the README), so that nothing passes through a float or a
/// truncating division.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// A JSON number that is no `i64`: its digits as they came (integers of any size, fractions, exponents).
    Number(CompactString),
    /// A decimal with its scale: `-73.0512`, `0.00`.
    Decimal(CompactString),
    /// float and double of a schema; `NaN` and the infinities included.
    Float(f64),
    Text(CompactString),
    Bytes(Box<[u8]>),
    /// `2026-11-29`, `infinity`, `-infinity`.
    Date(CompactString),
    /// `12:34:56.123456`, signed and beyond 24 h where the source allows it.
    Time(CompactString),
    /// Time of day in UTC with `Z`.
    TimeTz(CompactString),
    /// `2026-11-29T12:34:56.123456`
    Timestamp(CompactString),
    /// The same in UTC with `Z`.
    TimestampTz(CompactString),
    /// ISO 8601: `PT12H34M56.123456S`.
    Interval(CompactString),
    /// `101000000011`
    Bits(CompactString),
    Uuid(CompactString),
    /// The text of a JSON column or document, digits kept.
    Json(CompactString),
    Geometry {
        wkb: Box<[u8]>,
        srid: Option<i64>,
    },
    Array(Vec<Value>),
    Struct(Row),
    /// A TOASTed column that did not change: the connector does not know its value.
    Unavailable,
}

impl Value {
    /// What bytes are of which nothing is known: a text, if they can be one.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        std::str::from_utf8(bytes).map_or_else(|_| Self::Bytes(bytes.into()), |text| Self::Text(text.into()))
    }
}

/// Named fields in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    fields: Vec<(CompactString, Value)>,
}

impl Row {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_capacity(fields: usize) -> Self {
        Self { fields: Vec::with_capacity(fields) }
    }

    /// Inlined, so that a value is written where it is to stay.
    #[inline(always)]
    pub fn push(&mut self, name: impl Into<CompactString>, value: Value) {
        self.fields.push((name.into(), value));
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(n, _)| &**n == name).map(|(_, v)| v)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.fields.iter_mut().find(|(n, _)| &**n == name).map(|(_, v)| v)
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.fields.iter().position(|(n, _)| &**n == name)?;
        Some(self.fields.remove(at).1)
    }

    /// Follows a dotted path through nested structs. A field whose own name has the dots wins.
    pub fn path(&self, path: &str) -> Option<&Value> {
        if let Some(value) = self.get(path) {
            return Some(value);
        }
        let (head, rest) = path.split_once('.')?;
        match self.get(head)? {
            Value::Struct(row) => row.path(rest),
            _ => None,
        }
    }

    /// The same, to change it.
    pub fn path_mut(&mut self, path: &str) -> Option<&mut Value> {
        let at = self.fields.iter().position(|(name, _)| &**name == path);
        if let Some(at) = at {
            return Some(&mut self.fields[at].1);
        }
        let (head, rest) = path.split_once('.')?;
        match self.get_mut(head)? {
            Value::Struct(row) => row.path_mut(rest),
            _ => None,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.fields.iter().map(|(n, v)| (&**n, v))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.fields.iter_mut().map(|(n, v)| (&**n, v))
    }

    /// Keeps the fields for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &Value) -> bool) {
        self.fields.retain(|(n, v)| keep(n, v));
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

impl From<Vec<(CompactString, Value)>> for Row {
    fn from(fields: Vec<(CompactString, Value)>) -> Self {
        Self { fields }
    }
}

impl IntoIterator for Row {
    type Item = (CompactString, Value);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.fields.into_iter()
    }
}

impl FromIterator<(CompactString, Value)> for Row {
    fn from_iter<T: IntoIterator<Item = (CompactString, Value)>>(fields: T) -> Self {
        Self { fields: fields.into_iter().collect() }
    }
}
