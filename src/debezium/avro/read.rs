//! Bytes to wire values by a plan. Every count and depth is bounded by the bytes that are there.

use compact_str::CompactString;

use super::plan::{FieldStep, Plan, Step, StepId};
use crate::debezium::convert::{self, Strictness};
use crate::debezium::event::Fault;
use crate::debezium::json::{MAX_DEPTH, last_wins};
use crate::debezium::value::{Row, Value};

/// Values that take no bytes (nulls, empty records) for each byte that is there: few bytes must not ask for much
/// memory. A row of a table has none of them, a null among its columns takes a byte.
const EMPTY_PER_BYTE: usize = 8;
const LEAST_EMPTY: usize = 64;

/// How much of a value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::debezium) enum Extent {
    Whole,
    /// Without the fields that no event is made of.
    Needed,
}

impl Plan {
    /// Reads one value that takes all the bytes.
    pub(super) fn read(&self, bytes: &[u8], extent: Extent) -> Result<Value, Fault> {
        let spare = bytes.len().saturating_mul(EMPTY_PER_BYTE).saturating_add(LEAST_EMPTY);
        let mut reader = Reader { plan: self, whole: extent == Extent::Whole, bytes, spare };
        let value = reader.value(self.root, 0).map_err(|what| match what {
            What::Fault(fault) => *fault,
            What::Broken(why) => {
                let at = bytes.len() - reader.bytes.len();
                Fault::new("undecodable", format!("no avro of its schema: {why} at byte {at}"))
            }
        })?;
        match reader.bytes.len() {
            0 => Ok(value),
            left => Err(Fault::new("undecodable", format!("no avro of its schema: {left} bytes are left over"))),
        }
    }
}

/// Why reading ended.
enum What {
    Broken(&'static str),
    Fault(Box<Fault>),
}

struct Reader<'a> {
    plan: &'a Plan,
    whole: bool,
    /// What is not read yet.
    bytes: &'a [u8],
    /// Values without bytes that may still come.
    spare: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, step: StepId, depth: usize) -> Result<Value, What> {
        if depth > MAX_DEPTH {
            return Err(What::Broken("nested too deep"));
        }
        let plan = self.plan;
        Ok(match &plan.steps[step as usize] {
            Step::Null => {
                self.empty()?;
                Value::Null
            }
            Step::Bool => match self.byte()? {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return Err(What::Broken("no boolean")),
            },
            Step::Int => Value::Int(self.int()?),
            Step::Long => Value::Int(self.long()?),
            Step::Float => Value::Float(convert::single(f32::from_le_bytes(self.chunk()?))),
            Step::Double => Value::Float(f64::from_le_bytes(self.chunk()?)),
            Step::Bytes => Value::Bytes(self.sized()?.into()),
            Step::Text => Value::Text(self.text()?),
            Step::Fixed(0) => {
                self.empty()?;
                Value::Bytes(Box::default())
            }
            Step::Fixed(size) => Value::Bytes(self.take(*size)?.into()),
            Step::Enum(symbols) => {
                let at = usize::try_from(self.int()?).ok().and_then(|at| symbols.get(at));
                Value::Text(at.ok_or(What::Broken("no symbol of the enum"))?.clone())
            }
            Step::Optional { .. } => self.field(step, depth)?,
            Step::Union(branches) => {
                let branch = usize::try_from(self.long()?).ok().and_then(|at| branches.get(at));
                let (step, schema) = branch.ok_or(What::Broken("no branch of the union"))?;
                let value = self.value(*step, depth + 1)?;
                convert::value(value, schema, Strictness::Full).map_err(|fault| What::Fault(Box::new(fault)))?
            }
            Step::Record(fields) => {
                let mut row = Row::with_capacity(fields.len());
                if fields.is_empty() {
                    self.empty()?;
                }
                for FieldStep { name, step, unused } in fields {
                    if *unused && !self.whole {
                        self.skip(*step, depth + 1)?;
                    } else {
                        row.push(name.clone(), self.field(*step, depth + 1)?);
                    }
                }
                Value::Struct(row)
            }
            Step::Array(items) => {
                let mut array = Vec::new();
                self.blocks(|reader| {
                    array.push(reader.value(*items, depth + 1)?);
                    Ok(())
                })?;
                Value::Array(array)
            }
            Step::Map(values) => {
                let mut entries = Vec::new();
                self.blocks(|reader| {
                    let name = reader.text()?;
                    entries.push((name, reader.value(*values, depth + 1)?));
                    Ok(())
                })?;
                Value::Struct(Row::from(last_wins(entries)))
            }
            Step::Entries { record, text_keys } => {
                let mut entries = Vec::new();
                self.blocks(|reader| {
                    entries.push(reader.value(*record, depth + 1)?);
                    Ok(())
                })?;
                map_of(entries, *text_keys)
            }
            Step::Pending => return Err(What::Broken("a type without a definition")),
        })
    }

    /// A value, without a call for what most fields are.
    #[inline(always)]
    fn field(&mut self, step: StepId, depth: usize) -> Result<Value, What> {
        match &self.plan.steps[step as usize] {
            Step::Long => self.long().map(Value::Int),
            Step::Text => self.text().map(Value::Text),
            Step::Optional { null_branch, inner } => match self.long()? {
                branch if branch == *null_branch => Ok(Value::Null),
                branch if branch == 1 - *null_branch => self.value(*inner, depth),
                _ => Err(What::Broken("no branch of the union")),
            },
            _ => self.value(step, depth),
        }
    }

    /// Steps over a value.
    fn skip(&mut self, step: StepId, depth: usize) -> Result<(), What> {
        match &self.plan.steps[step as usize] {
            Step::Int | Step::Long => self.long().map(drop),
            Step::Bytes | Step::Text => self.sized().map(drop),
            Step::Optional { null_branch, inner } => match self.long()? {
                branch if branch == *null_branch => Ok(()),
                branch if branch == 1 - *null_branch => self.skip(*inner, depth),
                _ => Err(What::Broken("no branch of the union")),
            },
            _ => self.value(step, depth).map(drop),
        }
    }

    /// The items of an array or a map. A block with a negative count says its size in bytes as well.
    fn blocks(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), What>) -> Result<(), What> {
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                count = count.checked_neg().ok_or(What::Broken("no block count"))?;
                self.long()?;
            }
            for _ in 0..count {
                item(self)?;
            }
        }
    }

    /// A value that takes no bytes.
    fn empty(&mut self) -> Result<(), What> {
        self.spare = self.spare.checked_sub(1).ok_or(What::Broken("more empty values than its bytes account for"))?;
        Ok(())
    }

    /// A long of at most 32 bits, in at most the five bytes that these take.
    fn int(&mut self) -> Result<i64, What> {
        let before = self.bytes.len();
        let int = self.long()?;
        if before - self.bytes.len() > 5 || i32::try_from(int).is_err() {
            return Err(What::Broken("a number of more than 32 bits"));
        }
        Ok(int)
    }

    /// Zigzag, least significant seven bits first, at most ten bytes.
    #[inline(always)]
    fn long(&mut self) -> Result<i64, What> {
        match self.bytes {
            // Most lengths, branches and counts are below 64.
            [byte @ ..0x80, rest @ ..] => {
                self.bytes = rest;
                Ok(i64::from(byte >> 1) ^ -i64::from(byte & 1))
            }
            _ => self.wide_long(),
        }
    }

    fn wide_long(&mut self) -> Result<i64, What> {
        let mut coded: u64 = 0;
        for (at, byte) in self.bytes.iter().take(10).enumerate() {
            coded |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                if at == 9 && *byte > 1 {
                    break;
                }
                self.bytes = &self.bytes[at + 1..];
                return Ok((coded >> 1).cast_signed() ^ -(coded & 1).cast_signed());
            }
        }
        Err(What::Broken("no number"))
    }

    fn byte(&mut self) -> Result<u8, What> {
        Ok(self.chunk::<1>()?[0])
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], What> {
        let (chunk, rest) = self.bytes.split_first_chunk().ok_or(What::Broken("end of bytes"))?;
        self.bytes = rest;
        Ok(*chunk)
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], What> {
        let (taken, rest) = self.bytes.split_at_checked(size).ok_or(What::Broken("end of bytes"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn sized(&mut self) -> Result<&'a [u8], What> {
        let size = usize::try_from(self.long()?).map_err(|_| What::Broken("a negative length"))?;
        self.take(size)
    }

    fn text(&mut self) -> Result<CompactString, What> {
        CompactString::from_utf8(self.sized()?).map_err(|_| What::Broken("a text that is not utf-8"))
    }
}

fn map_of(entries: Vec<Value>, text_keys: bool) -> Value {
    let pairs = entries.into_iter().filter_map(|entry| match entry {
        Value::Struct(mut entry) => Some((entry.remove("key")?, entry.remove("value")?)),
        _ => None,
    });
    if text_keys {
        let named = pairs.map(|(key, value)| match key {
            Value::Text(name) => (name, value),
            other => (other.as_text().map(CompactString::from).unwrap_or_default(), value),
        });
        return Value::Struct(Row::from(last_wins(named.collect())));
    }
    Value::Array(pairs.map(|(key, value)| Value::Array(vec![key, value])).collect())
}
