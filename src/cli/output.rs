//! Printing: tables for people, JSON for programs.

use serde::Serialize;

/// One JSON document.
pub fn json<T: Serialize>(value: &T) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => print(&text),
        Err(error) => eprintln!("countersign: output: {error}"),
    }
}

/// A table with aligned columns; the last one may be as long as it likes.
pub fn table(head: &[&str], rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let last = cells.len().saturating_sub(1);
        let padded =
            cells.iter().zip(&widths).enumerate().map(|(index, (cell, width))| {
                if index == last { (*cell).to_owned() } else { format!("{cell:<width$}") }
            });
        print(padded.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(head.to_vec());
    for row in &rows {
        line(row.iter().map(String::as_str).collect());
    }
}

/// What others wrote, such as an id, may not steer a terminal or look like a line of ours.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Lines of text. A closed pipe ends the output, not the program with a panic.
pub fn print(text: &str) {
    use std::io::Write as _;
    let text = text.split('\n').map(printable).collect::<Vec<_>>().join("\n");
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_cannot_steer_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\u{9b}c\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
    }
}
