//! In which order a route's messages are applied, and which of a lane's slices takes one.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use schemars::JsonSchema;
use serde::Deserialize;

/// `order`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One after the other. A message that is set aside (`retry`) is overtaken by what comes behind it.
    #[default]
    Partition,
    /// Messages of one record key one after the other, other keys beside them: what comes behind one that is set aside
    /// waits for it, and one that fails again and again is set aside instead of holding up the other keys. Records without
    /// a key have no order.
    Key,
    /// No order is asked for.
    None,
}

impl Order {
    /// The slice, of so many, that takes a message. What must keep its order goes to the same one, and so does whatever has
    /// the same id.
    pub fn slice(self, record_key: Option<&[u8]>, inbox_key: &[u8], slices: usize) -> usize {
        match (self, record_key) {
            (Self::Partition, _) => 0,
            (Self::Key, Some(key)) => spread(key, slices),
            (Self::Key, None) | (Self::None, _) => spread(inbox_key, slices),
        }
    }
}

/// Anywhere, but always the same.
fn spread(bytes: &[u8], slices: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    (hasher.finish() % slices.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_keep_its_order_goes_to_one_slice_and_the_rest_to_all() {
        let (first, second) = (b"id-1".as_slice(), b"id-2".as_slice());
        for n in 0..200_u32 {
            let key = n.to_be_bytes();
            assert_eq!(Order::Partition.slice(Some(&key), first, 8), 0);
            assert_eq!(Order::Key.slice(Some(&key), first, 8), Order::Key.slice(Some(&key), second, 8));
            assert_eq!(Order::None.slice(Some(&key), first, 8), Order::None.slice(None, first, 8));
            assert_eq!(Order::Key.slice(None, &key, 8), Order::None.slice(None, &key, 8));
        }
        for order in [Order::Key, Order::None] {
            let taken = |slice| {
                (0..400_u32).filter(|n| order.slice(Some(&n.to_be_bytes()), &n.to_be_bytes(), 8) == slice).count()
            };
            for slice in 0..8 {
                assert!((20..100).contains(&taken(slice)), "{order:?}: slice {slice} takes {} of 400", taken(slice));
            }
        }
    }
}
