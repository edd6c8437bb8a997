//! JSON text to [`Value`] in one pass, digits kept: no number passes through a float.
//!
//! Hand-written for three reasons: the text of numbers must survive, a repeated Connect schema must be
//! skipped without being read (see [`super::document`]), and nesting must be bounded.

use super::value::{Row, Value};
use compact_str::CompactString;

/// Levels of arrays and objects. Connect schemas nest about ten deep; more is an attack or a mistake.
pub const MAX_DEPTH: usize = 64;

/// Rows up to this width are searched for duplicate names by comparing marks, wider ones are sorted.
const MARKED: usize = 64;

/// Why a text is not JSON. Never carries the text itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    #[error("not utf-8 from byte {0}")]
    Utf8(usize),
    #[error("{what} at byte {at}")]
    Syntax { at: usize, what: &'static str },
    #[error("nested deeper than {MAX_DEPTH} levels")]
    Depth,
    /// RFC 8259, section 4: what the object means is then unpredictable.
    #[error("a field name stands twice in the object that ends at byte {0}")]
    Repeated(usize),
}

/// Reads one JSON document. Of a repeated name in an object the last value wins, at the place of the first, as in a
/// database's JSON column.
pub fn parse(bytes: &[u8]) -> Result<Value, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|e| JsonError::Utf8(e.valid_up_to()))?;
    parse_text(text)
}

/// The same for text.
pub fn parse_text(text: &str) -> Result<Value, JsonError> {
    let scratch = &mut Scratch::default();
    Parser::new(text, scratch).document()
}

/// The same where an id or a digest may be taken from it: a repeated name is refused.
pub fn parse_unique(text: &str) -> Result<Value, JsonError> {
    parse_with(text, &mut Scratch::default())
}

/// The same with the scratch of the last one.
pub(super) fn parse_with(text: &str, scratch: &mut Scratch) -> Result<Value, JsonError> {
    let mut parser = Parser::new(text, scratch);
    let value = parser.document()?;
    parser.unique()?;
    Ok(value)
}

/// The fields of the objects that are being read, so that each object is allocated once, at its size.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch(Vec<(CompactString, Value)>);

/// A position in a JSON text.
pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
    fields: &'a mut Vec<(CompactString, Value)>,
    /// Where the first object ended in which a name stood twice.
    repeated: Option<usize>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, scratch: &'a mut Scratch) -> Self {
        // What a text that was no JSON left behind.
        scratch.0.clear();
        Self { text, at: 0, fields: &mut scratch.0, repeated: None }
    }

    fn document(&mut self) -> Result<Value, JsonError> {
        self.space();
        let value = self.value(0)?;
        self.end()?;
        Ok(value)
    }

    /// Whether no name was repeated so far.
    pub(super) fn unique(&self) -> Result<(), JsonError> {
        self.repeated.map_or(Ok(()), |at| Err(JsonError::Repeated(at)))
    }

    /// Bytes read so far.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Steps over `expected` if it comes next, byte for byte.
    pub(super) fn eat(&mut self, expected: &str) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(expected.as_bytes());
        if found {
            self.at += expected.len();
        }
        found
    }

    fn eat_byte(&mut self, expected: u8) -> bool {
        let found = self.peek() == Some(expected);
        self.at += usize::from(found);
        found
    }

    #[inline]
    pub(super) fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Only white space may follow.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { self.fail("text after the document") }
    }

    /// The value that begins here; `depth` levels stand around it.
    pub(super) fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => self.fail("no json value"),
            None => self.fail("end of text"),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fail<T>(&self, what: &'static str) -> Result<T, JsonError> {
        Err(JsonError::Syntax { at: self.at, what })
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        if self.eat(word) { Ok(value) } else { self.fail("no json value") }
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::Depth);
        }
        self.at += 1;
        self.space();
        if self.eat_byte(b'}') {
            return Ok(Value::Struct(Row::new()));
        }
        let first = self.fields.len();
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return self.fail("no field name");
            }
            let name = self.string()?;
            self.space();
            if !self.eat_byte(b':') {
                return self.fail("no colon after a field name");
            }
            self.space();
            let value = self.value(depth)?;
            self.fields.push((name, value));
            self.space();
            if self.eat_byte(b'}') {
                let fields = self.fields.split_off(first);
                let written = fields.len();
                let kept = last_wins(fields);
                if kept.len() < written {
                    self.repeated.get_or_insert(self.at);
                }
                return Ok(Value::Struct(Row::from(kept)));
            }
            if !self.eat_byte(b',') {
                return self.fail("no comma or brace after a field");
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, JsonError> {
        if depth > MAX_DEPTH {
            return Err(JsonError::Depth);
        }
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.eat_byte(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            self.space();
            items.push(self.value(depth)?);
            self.space();
            if self.eat_byte(b']') {
                return Ok(Value::Array(items));
            }
            if !self.eat_byte(b',') {
                return self.fail("no comma or bracket after an item");
            }
        }
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.at;
        let negative = self.eat_byte(b'-');
        let first = self.at;
        let mut whole = match self.peek() {
            // `-0` stays text: as an integer it would lose its sign.
            Some(b'0') => {
                self.at += 1;
                !negative
            }
            Some(b'1'..=b'9') => {
                self.digits();
                true
            }
            _ => return self.fail("no digit in a number"),
        };
        let digits = &self.text[first..self.at];
        match self.peek() {
            Some(b'.' | b'e' | b'E') => whole = false,
            Some(b'0'..=b'9') => return self.fail("a number with a leading zero"),
            _ => {}
        }
        // Nineteen digits always fit into 64 bits, if not into 63.
        if whole && digits.len() <= 19 {
            let int = digits.bytes().fold(0, |int: u64, digit| int * 10 + u64::from(digit - b'0'));
            if let Ok(int) = i64::try_from(int) {
                return Ok(Value::Int(if negative { -int } else { int }));
            }
        }
        if self.eat_byte(b'.') && self.digits() == 0 {
            return self.fail("no digit after the point");
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.fail("no digit in an exponent");
            }
        }
        let digits = &self.text[start..self.at];
        Ok(match digits.parse::<i64>() {
            Ok(int) if whole => Value::Int(int),
            _ => Value::Number(digits.into()),
        })
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        self.at - start
    }

    fn string(&mut self) -> Result<CompactString, JsonError> {
        self.at += 1;
        let start = self.at;
        self.plain();
        if self.peek() == Some(b'"') {
            let text = &self.text[start..self.at];
            self.at += 1;
            return Ok(text.into());
        }
        let mut out = String::from(&self.text[start..self.at]);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out.into());
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(_) => return self.fail("a control character in a text"),
                None => return self.fail("end of text"),
            }
            let start = self.at;
            self.plain();
            out.push_str(&self.text[start..self.at]);
        }
    }

    /// Steps over everything that stands for itself in a text, eight bytes at a time.
    fn plain(&mut self) {
        const ONES: u64 = u64::MAX / 255;
        const HIGH: u64 = ONES << 7;
        // The high bit of each byte below `least`; exact up to the first such byte, which is all that is asked for.
        let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word & HIGH;
        let bytes = self.text.as_bytes();
        while let Some(chunk) = bytes[self.at..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*chunk);
            let quote = below(word ^ (ONES * u64::from(b'"')), 1);
            let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
            let special = quote | backslash | below(word, 0x20);
            if special != 0 {
                self.at += (special.trailing_zeros() / 8) as usize;
                return;
            }
            self.at += 8;
        }
        let rest = &bytes[self.at..];
        self.at += rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len());
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let Some(letter) = self.peek() else {
            return self.fail("end of text");
        };
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return self.fail("an unknown escape"),
        })
    }

    /// Four hex digits, or two times four for a surrogate pair. Half a pair has no UTF-8 form and is refused:
    /// replacing it would change the text.
    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.hex4()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !self.eat("\\u") {
                    return self.fail("half a surrogate pair");
                }
                let second = self.hex4()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return self.fail("half a surrogate pair");
                }
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            _ => first,
        };
        char::from_u32(code).map_or_else(|| self.fail("half a surrogate pair"), Ok)
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let Some(digits) = self.text.as_bytes().get(self.at..self.at + 4) else {
            return self.fail("end of text");
        };
        let mut code = 0;
        for digit in digits {
            let Some(value) = (*digit as char).to_digit(16) else {
                return self.fail("no hex digit in an escape");
            };
            code = code * 16 + value;
        }
        self.at += 4;
        Ok(code)
    }
}

/// A number that two equal names share and two others hardly do: their length, first and last bytes.
fn mark(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let ends = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(21),
        _ => bytes.iter().fold(0, |ends, byte| ends << 8 | u64::from(*byte)),
    };
    ends ^ (bytes.len() as u64) << 56
}

fn any_repeated(fields: &[(CompactString, Value)]) -> bool {
    if fields.len() > MARKED {
        let mut names: Vec<&str> = fields.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        return names.windows(2).any(|pair| pair[0] == pair[1]);
    }
    let mut marks = [0; MARKED];
    fields.iter().enumerate().any(|(at, (name, _))| {
        marks[at] = mark(name);
        marks[..at].contains(&marks[at])
    })
}

/// Of a repeated name the last value, at the place of the first.
pub(super) fn last_wins(mut fields: Vec<(CompactString, Value)>) -> Vec<(CompactString, Value)> {
    // Two marks alike are rarely two names alike: what follows is right for both.
    let repeated = any_repeated(&fields);
    if !repeated {
        return fields;
    }
    let mut places = std::collections::HashMap::new();
    let mut kept: Vec<(CompactString, Value)> = Vec::with_capacity(fields.len());
    for (name, value) in fields.drain(..) {
        match places.get(&name) {
            Some(&place) => {
                let (_, old): &mut (CompactString, Value) = &mut kept[place];
                *old = value;
            }
            None => {
                places.insert(name.clone(), kept.len());
                kept.push((name, value));
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests;
