//! What is kept of a record that is not applied: its dead letter, or its line while it waits.

use sha2::{Digest as _, Sha256};

use crate::record::{Header, Record};
use crate::record_line::{self, NOT_KEPT};

/// What of a record goes into its dead letter: all of it, unless no statement could carry that.
pub(super) struct Kept<'a> {
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Vec<u8>,
}

impl<'a> Kept<'a> {
    pub fn of(record: &'a Record, most: usize) -> Self {
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let headers = record_line::write_headers(&record.headers);
        let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        if len(key) + len(value) + headers.len() <= most {
            return Self { key, value, headers };
        }
        let key = key.filter(|key| key.len() <= most);
        // The longest go first: an id is short.
        let mut left: Vec<&Header> = record.headers.iter().collect();
        left.sort_by_key(|header| header.value.as_ref().map_or(0, Vec::len));
        loop {
            let mut kept: Vec<Header> = record.headers.iter().filter(|h| left.contains(h)).cloned().collect();
            kept.push(Header { name: NOT_KEPT.to_owned(), value: None });
            let headers = record_line::write_headers(&kept);
            if len(key) + headers.len() <= most || left.pop().is_none() {
                return Self { key, value: None, headers };
            }
        }
    }
}

/// The record as it is kept while its message waits; none if no statement could carry it.
pub(super) fn waiting_line(record: &Record, most: usize) -> Option<Vec<u8>> {
    Some(record_line::write(record).into_bytes()).filter(|line| line.len() <= most)
}

/// The same for the same fault of the same content: a redelivery is not parked again.
pub(crate) fn dead_letter_key(inbox_key: &[u8], class: &str, digest: Option<&str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [inbox_key, class.as_bytes(), digest.unwrap_or("").as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_does_not_fit_the_value_goes_first_and_then_the_longest_headers() {
        let header = |name: &str, bytes| Header { name: name.to_owned(), value: Some(vec![b'x'; bytes]) };
        let mut record = Record::sample(Some("key"), Some("value"));
        record.headers = vec![header("id", 10), header("trace", 5000), header("call", 20)];
        let names = |kept: &Kept<'_>| {
            let headers = record_line::read_headers(&kept.headers).unwrap_or_default();
            headers.into_iter().map(|header| header.name).collect::<Vec<_>>()
        };
        let whole = Kept::of(&record, 10_000);
        assert_eq!((whole.value, names(&whole).len()), (record.value.as_deref(), 3));
        let less = Kept::of(&record, 5_000);
        assert_eq!((less.key, less.value), (record.key.as_deref(), None));
        assert_eq!(names(&less), ["id", "call", NOT_KEPT]);
        let least = Kept::of(&record, 2);
        assert_eq!((least.key, least.value, names(&least)), (None, None, vec![NOT_KEPT.to_owned()]));
    }
}
