//! One Kafka delivery, as it came.

use std::fmt;
use std::sync::Arc;

/// Where a record stands in Kafka. It names a delivery, never a message: a connector that restarts
/// writes the same change again at a new offset.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordPosition {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
}

impl fmt::Display for RecordPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

/// A record header. Kafka allows one name several times and a value of null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: Option<Vec<u8>>,
}

/// A record with its bytes untouched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub position: RecordPosition,
    /// Milliseconds since 1970-01-01 UTC, as the producer or the broker set it.
    pub timestamp_ms: Option<i64>,
    pub headers: Vec<Header>,
    pub key: Option<Vec<u8>>,
    /// `None` is a tombstone; an empty value is not.
    pub value: Option<Vec<u8>>,
}

impl Record {
    /// Bytes that this record holds in memory, without the fixed part.
    pub fn size(&self) -> usize {
        let len = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        len(&self.key) + len(&self.value) + self.headers.iter().map(|h| h.name.len() + len(&h.value)).sum::<usize>()
    }

    /// The values of every header of this name, in order.
    pub fn header_values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Option<&'a [u8]>> {
        self.headers.iter().filter(move |h| h.name == name).map(|h| h.value.as_deref())
    }
}

#[cfg(test)]
impl Record {
    /// A record of topic `t` for tests of decoding.
    pub(crate) fn sample(key: Option<&str>, value: Option<&str>) -> Self {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        Self {
            position: RecordPosition { topic: "t".into(), partition: 0, offset: 0 },
            timestamp_ms: None,
            headers: Vec::new(),
            key: bytes(key),
            value: bytes(value),
        }
    }

    pub(crate) fn with_header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push(Header { name: name.to_owned(), value: Some(value.into()) });
        self
    }
}
