//! Records in columns, for people.

use super::sight::Sight;
use crate::cli::output::printable;
use crate::debezium::render;
use crate::debezium::value::{Row, Value};

/// Aligns the lines of what comes together; columns only ever grow.
pub struct View {
    colored: bool,
    widths: [usize; COLUMNS],
    rows: Vec<[Cell; COLUMNS]>,
    headed: bool,
}

struct Cell {
    text: String,
    /// SGR parameters; none is plain.
    style: &'static str,
}

const COLUMNS: usize = 7;
const HEAD: [&str; COLUMNS] = ["RECORD", "KIND", "OP", "TABLE", "KEY", "MESSAGE", "VALUES"];
/// Characters of a key, of one value, of all of them.
const KEY: usize = 40;
const VALUE: usize = 40;
const VALUES: usize = 160;

const PLAIN: &str = "";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const MAGENTA: &str = "35";
const CYAN: &str = "36";

impl View {
    pub fn new(colored: bool) -> Self {
        Self { colored, widths: HEAD.map(str::len), rows: Vec::new(), headed: false }
    }

    pub fn add(&mut self, sight: &Sight) {
        let table = [&sight.db, &sight.schema, &sight.table].into_iter().flatten().map(String::as_str);
        let style = match sight.op {
            Some("c") => GREEN,
            Some("u") => YELLOW,
            Some("d" | "t") => RED,
            Some("r") => CYAN,
            Some(_) => MAGENTA,
            None => PLAIN,
        };
        let kind = match sight.kind {
            "undecodable" => RED,
            "change" | "outbox" | "plain" | "message" => PLAIN,
            _ => DIM,
        };
        let key = sight.key.as_ref().map_or_else(String::new, |key| cut(&shown(key), KEY));
        let (values, told) = match &sight.error {
            Some(error) => (format!("{}: {}", error.code, error.detail), RED),
            None => (values(sight), PLAIN),
        };
        let cell = |text: String, style| Cell { text: printable(&text), style };
        let row = [
            cell(format!("{}/{}/{}", sight.topic, sight.partition, sight.offset), DIM),
            cell(sight.kind.to_owned(), kind),
            cell(sight.op.unwrap_or_default().to_owned(), style),
            cell(table.collect::<Vec<_>>().join("."), PLAIN),
            cell(key, PLAIN),
            cell(sight.message_id.clone().unwrap_or_default(), DIM),
            cell(values, told),
        ];
        for (width, cell) in self.widths.iter_mut().zip(&row) {
            *width = (*width).max(cell.text.chars().count());
        }
        self.rows.push(row);
    }

    /// Writes what was added since the last time.
    pub fn print(&mut self, out: &mut String) {
        if !self.headed && !self.rows.is_empty() {
            self.headed = true;
            let head = HEAD.map(|text| Cell { text: text.to_owned(), style: "1" });
            self.line(out, &head);
        }
        for row in std::mem::take(&mut self.rows) {
            self.line(out, &row);
        }
    }

    fn line(&self, out: &mut String, row: &[Cell; COLUMNS]) {
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
        for (at, (cell, width)) in row.iter().zip(&self.widths).enumerate().take(last + 1) {
            let styled = self.colored && !cell.style.is_empty() && !cell.text.is_empty();
            if styled {
                out.push_str(&format!("\x1b[{}m{}\x1b[0m", cell.style, cell.text));
            } else {
                out.push_str(&cell.text);
            }
            if at < last {
                out.extend(std::iter::repeat_n(' ', width - cell.text.chars().count() + 2));
            }
        }
        out.push('\n');
    }
}

/// Of an update what changed, of anything else what is there.
fn values(sight: &Sight) -> String {
    let mut parts: Vec<String> = match (&sight.before, &sight.after) {
        (Some(Value::Struct(before)), Some(Value::Struct(after))) => changes(before, after),
        (_, Some(Value::Struct(row))) | (Some(Value::Struct(row)), None) => fields(row),
        (_, Some(value)) | (Some(value), None) => vec![shown(value)],
        (None, None) => Vec::new(),
    };
    if !sight.unavailable.is_empty() {
        parts.push(format!("unavailable: {}", sight.unavailable.join(", ")));
    }
    cut(&parts.join("  "), VALUES)
}

fn fields(row: &Row) -> Vec<String> {
    let known = row.iter().filter(|(_, value)| **value != Value::Unavailable);
    known.map(|(name, value)| format!("{name}={}", cut(&shown(value), VALUE))).collect()
}

fn changes(before: &Row, after: &Row) -> Vec<String> {
    let known = after.iter().filter(|(_, value)| **value != Value::Unavailable);
    let changed = known.filter(|(name, value)| before.get(name) != Some(value));
    changed
        .map(|(name, value)| match before.get(name) {
            Some(old) => format!("{name}: {} → {}", cut(&shown(old), VALUE), cut(&shown(value), VALUE)),
            None => format!("{name}={}", cut(&shown(value), VALUE)),
        })
        .collect()
}

/// Texts without quotes.
fn shown(value: &Value) -> String {
    match value {
        Value::Struct(row) if row.len() == 1 => fields(row).join(""),
        Value::Json(_) | Value::Struct(_) | Value::Array(_) => render::json(value),
        value => value.as_text().map_or_else(|| "null".to_owned(), |text| text.into_owned()),
    }
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Converters that leave a null where a default stands mean "false" by it.
pub fn say_snapshot(source: &mut Value) {
    if let Value::Struct(source) = source
        && let Some(snapshot @ Value::Null) = source.get_mut("snapshot")
    {
        *snapshot = Value::Text("false".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_shows_what_changed() {
        let row = |text: &str| match crate::debezium::json::parse_text(text) {
            Ok(Value::Struct(row)) => row,
            other => panic!("{other:?}"),
        };
        let (before, after) = (row(r#"{"id":1,"a":"x","b":null}"#), row(r#"{"id":1,"a":"y","b":null,"c":2}"#));
        assert_eq!(changes(&before, &after), ["a: x → y", "c=2"]);
        assert_eq!(cut("ünïcode", 3), "ünï…");
    }
}
