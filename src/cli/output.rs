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
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
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
    for row in rows {
        line(row.iter().map(String::as_str).collect());
    }
}

/// A closed pipe ends the output, not the program with a panic.
pub fn print(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
