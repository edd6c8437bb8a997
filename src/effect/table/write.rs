//! The statements of one row: update, upsert, delete, and the move to another key.

use super::TableEffect;
use super::columns::{Cell, Cells, Columns};
use super::key::RowKey;
use crate::decision::{Outcome, Refusal, RefusalKind};
use crate::store::column::Written;
use crate::store::{Bind, Dialect, Meaning, StoreError, Tx};

const SAVEPOINT: &str = "countersign_move";

/// What became of a row that was to get another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Yes,
    /// There is no such row.
    Absent,
    /// A row with the new key is there.
    Taken,
}

fn updatable(columns: &Columns, cell: &Cell) -> bool {
    !columns.written(&cell.column, Written::Identity)
}

/// The cells that are no part of the key.
fn values<'a>(cells: &'a Cells, key: &RowKey) -> Vec<&'a Cell> {
    cells.cells.iter().filter(|cell| !key.has(&cell.column)).collect()
}

/// `a = $1, b = $2`
fn assignments<'a>(cells: impl Iterator<Item = &'a Cell>, dialect: Dialect, columns: &Columns) -> (String, Vec<Bind>) {
    let (mut set, mut binds) = (Vec::new(), Vec::new());
    for (n, cell) in cells.enumerate() {
        set.push(format!("{} = {}", dialect.quote(&cell.column), columns.place(dialect, &cell.column, n)));
        binds.push(cell.bind.clone());
    }
    (set.join(", "), binds)
}

impl TableEffect {
    fn table(&self, dialect: Dialect) -> String {
        dialect.quote_path(&self.spec.table)
    }

    pub(super) async fn empty(&self, tx: &mut Tx) -> Result<(), StoreError> {
        tx.execute(&format!("DELETE FROM {}", self.table(tx.dialect())), Vec::new()).await.map(drop)
    }

    pub(super) async fn delete(&self, tx: &mut Tx, columns: &Columns, key: &RowKey) -> Result<(), StoreError> {
        let condition = key.condition(tx.dialect(), columns, 0);
        self.delete_where(tx, condition).await
    }

    /// Deletes the row of a key, unless it is the one of the other key as well.
    pub(super) async fn delete_but(
        &self,
        tx: &mut Tx,
        columns: &Columns,
        (key, other): (&RowKey, &RowKey),
    ) -> Result<(), StoreError> {
        let condition = key.but_not(other, tx.dialect(), columns);
        self.delete_where(tx, condition).await
    }

    async fn delete_where(&self, tx: &mut Tx, (condition, binds): (String, Vec<Bind>)) -> Result<(), StoreError> {
        tx.execute(&format!("DELETE FROM {} WHERE {condition}", self.table(tx.dialect())), binds).await.map(drop)
    }

    async fn is_there(&self, tx: &mut Tx, (condition, binds): (String, Vec<Bind>)) -> Result<bool, StoreError> {
        let sql = format!("SELECT 1 FROM {} WHERE {condition}", self.table(tx.dialect()));
        Ok(!tx.fetch(&sql, binds).await?.is_empty())
    }

    /// Whether a row of this key is there that is not the other key's.
    pub(super) async fn taken(
        &self,
        tx: &mut Tx,
        columns: &Columns,
        (key, other): (&RowKey, &RowKey),
    ) -> Result<bool, StoreError> {
        let condition = key.but_not(other, tx.dialect(), columns);
        self.is_there(tx, condition).await
    }

    /// Gives the row of one key the other key, and new values where there are any.
    pub(super) async fn move_row(
        &self,
        tx: &mut Tx,
        columns: &Columns,
        (from, to): (&RowKey, &RowKey),
        cells: Option<&Cells>,
    ) -> Result<Moved, StoreError> {
        let dialect = tx.dialect();
        if self.taken(tx, columns, (to, from)).await? {
            return Ok(Moved::Taken);
        }
        let values = cells.map_or_else(Vec::new, |cells| values(cells, to));
        let set = to.cells.iter().chain(values.into_iter().filter(|cell| updatable(columns, cell)));
        let (set, mut binds) = assignments(set, dialect, columns);
        let (condition, key) = from.condition(dialect, columns, binds.len());
        binds.extend(key);
        let sql = format!("UPDATE {} SET {set} WHERE {condition}", self.table(dialect));
        // Another lane may be about to commit a row of the new key: this statement waits for it, and then meets it.
        tx.savepoint(SAVEPOINT).await?;
        match tx.execute(&sql, binds).await {
            Ok(rows) => {
                tx.release_savepoint(SAVEPOINT).await?;
                Ok(if rows > 0 { Moved::Yes } else { Moved::Absent })
            }
            Err(error) if error.meaning() == Meaning::Unique => {
                tx.rollback_to(SAVEPOINT).await?;
                // Else it was another unique column, whose answer the route has.
                if self.taken(tx, columns, (to, from)).await? { Ok(Moved::Taken) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the state of a row.
    pub(super) async fn write(
        &self,
        tx: &mut Tx,
        columns: &Columns,
        key: &RowKey,
        cells: &Cells,
    ) -> Result<Outcome, StoreError> {
        let values = values(cells, key);
        if !cells.unavailable.is_empty() || tx.dialect() == Dialect::MySql {
            // An upsert on MySQL would meet any unique key; an unavailable value must not be inserted anywhere.
            if self.update(tx, columns, &values, key).await? {
                return Ok(Outcome::Applied);
            }
        }
        if !cells.unavailable.is_empty() {
            return Ok(Outcome::Refused(Refusal {
                kind: RefusalKind::Park,
                code: "unavailable".to_owned(),
                reason: format!(
                    "the row is not there, and the connector did not send {} (TOAST)",
                    cells.unavailable.join(", ")
                ),
                clean: true,
            }));
        }
        self.upsert(tx, columns, key, &values).await?;
        Ok(Outcome::Applied)
    }

    /// False if the row is not there.
    async fn update(&self, tx: &mut Tx, columns: &Columns, values: &[&Cell], key: &RowKey) -> Result<bool, StoreError> {
        let dialect = tx.dialect();
        let values = values.iter().copied().filter(|cell| updatable(columns, cell));
        let (set, mut binds) = assignments(values, dialect, columns);
        if binds.is_empty() {
            return self.is_there(tx, key.condition(dialect, columns, 0)).await;
        }
        let (condition, key_binds) = key.condition(dialect, columns, binds.len());
        binds.extend(key_binds);
        let rows = tx.execute(&format!("UPDATE {} SET {set} WHERE {condition}", self.table(dialect)), binds).await?;
        Ok(rows > 0)
    }

    async fn upsert(&self, tx: &mut Tx, columns: &Columns, key: &RowKey, values: &[&Cell]) -> Result<(), StoreError> {
        let dialect = tx.dialect();
        let cells: Vec<&Cell> = key.cells.iter().chain(values.iter().copied()).collect();
        let places = cells.iter().enumerate().map(|(n, cell)| columns.place(dialect, &cell.column, n));
        let rows = format!("VALUES ({})", places.collect::<Vec<_>>().join(", "));
        let sql = self.upsert_sql(dialect, columns, (&cells, key.cells.len()), &rows);
        tx.execute(&sql, cells.iter().map(|cell| cell.bind.clone()).collect()).await.map(drop)
    }

    /// The same for many rows on PostgreSQL: one array a column, the first `keys` of them the key's.
    pub(super) fn upsert_many(&self, columns: &Columns, cells: &[Cell], keys: usize) -> String {
        let dialect = Dialect::Postgres;
        let places = cells.iter().enumerate().map(|(n, cell)| columns.cast(dialect, &cell.column, &format!("u.c{n}")));
        let places = places.collect::<Vec<_>>().join(", ");
        let arrays = (1..=cells.len()).map(|n| format!("CAST(${n} AS text[])")).collect::<Vec<_>>().join(", ");
        let names = (0..cells.len()).map(|n| format!("c{n}")).collect::<Vec<_>>().join(", ");
        let rows = format!("SELECT {places} FROM unnest({arrays}) WITH ORDINALITY AS u({names}, n) ORDER BY u.n");
        self.upsert_sql(dialect, columns, (&cells.iter().collect::<Vec<_>>(), keys), &rows)
    }

    fn upsert_sql(&self, dialect: Dialect, columns: &Columns, (cells, keys): (&[&Cell], usize), rows: &str) -> String {
        let quoted =
            |cells: &[&Cell]| cells.iter().map(|cell| dialect.quote(&cell.column)).collect::<Vec<_>>().join(", ");
        // The source numbered its rows; a number of the target's own would be another.
        let identity = cells.iter().any(|cell| columns.written(&cell.column, Written::Identity));
        let overriding = if identity { " OVERRIDING SYSTEM VALUE" } else { "" };
        let mut sql = format!("INSERT INTO {} ({}){overriding} {rows}", self.table(dialect), quoted(cells));
        if dialect != Dialect::MySql {
            let (key, values) = cells.split_at(keys);
            let set = values.iter().filter(|cell| updatable(columns, cell)).map(|cell| {
                let name = dialect.quote(&cell.column);
                format!("{name} = excluded.{name}")
            });
            let set = set.collect::<Vec<_>>().join(", ");
            let action = if set.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {set}") };
            sql.push_str(&format!(" ON CONFLICT ({}) DO {action}", quoted(key)));
        }
        sql
    }
}
