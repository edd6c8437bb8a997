//! Changes of a run that are still to be written: those of one row folded into one, column by column, and many rows in one
//! statement.
//!
//! What is seen of the table at the end of the run is the same as if each change had been written by itself. Rows are written
//! in the order of their last changes. If the table then refuses one (a unique column whose value is another row's for a
//! moment), the run is undone and goes change by change.

use std::collections::HashMap;

use super::TableEffect;
use super::columns::{Cell, Cells, Columns};
use super::key::RowKey;
use crate::store::bind::cut;
use crate::store::{Bind, Dialect, StoreError, Tx};

/// What a row is to become.
pub(super) struct Folded {
    pub key: RowKey,
    /// The values of its columns; None where it is deleted.
    pub cells: Option<Vec<Cell>>,
}

/// Rows to be written, in the order of their last changes.
#[derive(Default)]
pub(super) struct Gathered {
    rows: Vec<Option<Folded>>,
    at: HashMap<[u8; 32], usize>,
}

impl Gathered {
    /// The row gets these values and keeps the others. One that is to be deleted is written out before.
    pub fn write(&mut self, key: &RowKey, values: Vec<Cell>) {
        let mut row = self.take(key);
        let cells = row.cells.get_or_insert_default();
        for cell in values {
            match cells.iter_mut().find(|known| known.column == cell.column) {
                Some(known) => known.bind = cell.bind,
                None => cells.push(cell),
            }
        }
        self.put(row);
    }

    pub fn delete(&mut self, key: &RowKey) {
        let row = self.take(key);
        self.put(Folded { cells: None, ..row });
    }

    /// What is known of the row: None if nothing is, else whether it is there.
    pub fn there(&self, key: &RowKey) -> Option<bool> {
        let row = self.rows[*self.at.get(&key.hash)?].as_ref()?;
        Some(row.cells.is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn take(&mut self, key: &RowKey) -> Folded {
        let known = self.at.remove(&key.hash).and_then(|at| self.rows[at].take());
        known.unwrap_or_else(|| Folded { key: key.clone(), cells: None })
    }

    fn put(&mut self, row: Folded) {
        self.at.insert(row.key.hash, self.rows.len());
        self.rows.push(Some(row));
    }
}

impl TableEffect {
    /// Writes what is gathered.
    pub(super) async fn flush(
        &self,
        tx: &mut Tx,
        columns: &Columns,
        gathered: &mut Gathered,
    ) -> Result<(), StoreError> {
        if gathered.is_empty() {
            return Ok(());
        }
        let mut alike: Vec<Folded> = Vec::new();
        for row in std::mem::take(gathered).rows.into_iter().flatten() {
            if row.cells.is_none() || alike.first().is_some_and(|first| !is_alike(first, &row)) {
                self.upsert_all(tx, columns, std::mem::take(&mut alike)).await?;
            }
            match row.cells {
                None => self.delete(tx, columns, &row.key).await?,
                Some(_) => alike.push(row),
            }
        }
        self.upsert_all(tx, columns, alike).await
    }

    /// Rows with the same columns.
    async fn upsert_all(&self, tx: &mut Tx, columns: &Columns, rows: Vec<Folded>) -> Result<(), StoreError> {
        if tx.dialect() != Dialect::Postgres || rows.len() < 2 {
            for Folded { key, cells, .. } in rows {
                let cells = Cells { cells: cells.unwrap_or_default(), unavailable: Vec::new() };
                self.write(tx, columns, &key, &cells).await?;
            }
            return Ok(());
        }
        let cells_of = |row: Folded| {
            let Folded { key, cells, .. } = row;
            let values =
                cells.unwrap_or_default().into_iter().filter(|cell| !key.has(&cell.column)).collect::<Vec<_>>();
            key.cells.into_iter().chain(values).collect::<Vec<_>>()
        };
        let keys = rows[0].key.cells.len();
        let rows: Vec<Vec<Cell>> = rows.into_iter().map(cells_of).collect();
        let sql = self.upsert_many(columns, &rows[0], keys);
        let binds = rows.into_iter().map(|row| row.into_iter().map(|cell| cell.bind).collect()).collect();
        for chunk in cut(binds, usize::MAX, tx.statement_bytes()) {
            tx.execute(&sql, Bind::texts_by_column(&chunk)?).await?;
        }
        Ok(())
    }
}

fn is_alike(one: &Folded, other: &Folded) -> bool {
    let (one, other) = (one.cells.iter().flatten(), other.cells.iter().flatten());
    one.map(|cell| &cell.column).eq(other.map(|cell| &cell.column))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: u8) -> RowKey {
        RowKey { cells: vec![cell("id", "1")], hash: [name; 32] }
    }

    fn cell(column: &str, value: &str) -> Cell {
        Cell { column: column.to_owned(), bind: Bind::text(value) }
    }

    fn shown(gathered: &Gathered) -> Vec<String> {
        let value = |cell: &Cell| match &cell.bind {
            Bind::Text(value) => format!("{}={value}", cell.column),
            _ => panic!("a text"),
        };
        let rows = gathered.rows.iter().flatten();
        rows.map(|row| {
            let cells = row.cells.as_ref().map(|cells| cells.iter().map(value).collect::<Vec<_>>().join(" "));
            format!("{} {}", row.key.hash[0], cells.unwrap_or("deleted".to_owned()))
        })
        .collect()
    }

    #[test]
    fn later_values_replace_earlier_ones_and_what_is_not_said_stays() {
        let mut gathered = Gathered::default();
        gathered.write(&key(1), vec![cell("a", "1"), cell("b", "1")]);
        gathered.write(&key(2), vec![cell("a", "2")]);
        gathered.write(&key(1), vec![cell("b", "3"), cell("c", "3")]);
        assert_eq!(shown(&gathered), ["2 a=2", "1 a=1 b=3 c=3"], "in the order of the last changes");
        assert_eq!((gathered.there(&key(1)), gathered.there(&key(3))), (Some(true), None));
    }

    #[test]
    fn a_delete_ends_what_was_to_be_written() {
        let mut gathered = Gathered::default();
        gathered.write(&key(1), vec![cell("a", "1"), cell("b", "1")]);
        gathered.write(&key(2), vec![cell("a", "2")]);
        gathered.delete(&key(1));
        assert_eq!(gathered.there(&key(1)), Some(false));
        assert_eq!(shown(&gathered), ["2 a=2", "1 deleted"]);
    }
}
