//! Tries what a run will do, in a transaction that is rolled back.

use super::{Bind, Dialect, StoreError, Tx};

/// One table of ours, and a row for it that no run would write.
pub struct Probe {
    pub table: &'static str,
    /// A row that the other needs.
    before: Option<&'static str>,
    insert: &'static str,
    condition: &'static str,
    /// A column that is set to what it is.
    column: &'static str,
}

/// The same text on all three databases: a plain literal becomes bytes where the column holds bytes.
pub const PROBES: &[Probe] = &[
    Probe {
        table: "countersign_meta",
        before: None,
        insert: "INSERT INTO countersign_meta (name, value) VALUES ('@check', '')",
        condition: "name = '@check'",
        column: "value",
    },
    Probe {
        table: "countersign_inbox",
        before: None,
        insert: "INSERT INTO countersign_inbox (inbox_key, pipeline, scope, route, status, attempt_token, receipt_key, \
                 topic, kafka_partition, kafka_offset, received_at) VALUES ('@check', '@check', '', '@check', \
                 'PROCESSING', 0, '', '@check', 0, 0, CURRENT_TIMESTAMP)",
        condition: "inbox_key = '@check'",
        column: "attempts",
    },
    Probe {
        table: "countersign_outbox",
        before: None,
        insert: "INSERT INTO countersign_outbox (pipeline, receipt_id, receipt_key, receipt, created_at) \
                 VALUES ('@check', '@check', '', '', CURRENT_TIMESTAMP)",
        condition: "pipeline = '@check'",
        column: "receipt",
    },
    Probe {
        table: "countersign_dead_letters",
        before: None,
        insert: "INSERT INTO countersign_dead_letters (dead_letter_key, pipeline, inbox_key, topic, kafka_partition, \
                 kafka_offset, class, code, reason, status, attempts, created_at, updated_at) VALUES ('@check', \
                 '@check', '@check', '@check', 0, 0, '', '', '', 'open', 0, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)",
        condition: "dead_letter_key = '@check'",
        column: "status",
    },
    Probe {
        table: "countersign_lanes",
        before: None,
        insert: "INSERT INTO countersign_lanes (pipeline, topic, kafka_partition, epoch, owner, next_offset, \
                 updated_at) VALUES ('@check', '@check', 0, 0, '', 0, CURRENT_TIMESTAMP)",
        condition: "pipeline = '@check'",
        column: "owner",
    },
    Probe {
        table: "countersign_row_versions",
        before: None,
        insert: "INSERT INTO countersign_row_versions (pipeline, table_name, key_hash, lineage, position, deleted, \
                 updated_at) VALUES ('@check', '@check', '@check', '', '', FALSE, CURRENT_TIMESTAMP)",
        condition: "pipeline = '@check'",
        column: "position",
    },
    Probe {
        table: "countersign_reconcile_batches",
        before: None,
        insert: BATCH,
        condition: "pipeline = '@check'",
        column: "checked",
    },
    Probe {
        table: "countersign_reconcile_diffs",
        before: Some(BATCH),
        insert: "INSERT INTO countersign_reconcile_diffs (batch_id, topic, kafka_partition, kafka_offset, kind, detail) \
                 SELECT id, '@check', 0, 0, '@check', '' FROM countersign_reconcile_batches WHERE pipeline = '@check'",
        condition: "kind = '@check'",
        column: "detail",
    },
];

const BATCH: &str = "INSERT INTO countersign_reconcile_batches (pipeline, topic, status, started_at) \
                     VALUES ('@check', '@check', '', CURRENT_TIMESTAMP)";

impl Tx {
    /// Inserts, updates, reads and deletes one row. The caller rolls back.
    pub async fn probe(&mut self, probe: &Probe) -> Result<(), StoreError> {
        let Probe { table, before, insert, condition, column } = probe;
        if let Some(before) = before {
            self.execute(before, Vec::new()).await?;
        }
        self.execute(insert, Vec::new()).await?;
        let updated =
            self.execute(&format!("UPDATE {table} SET {column} = {column} WHERE {condition}"), Vec::new()).await?;
        let read = self.fetch(&format!("SELECT {column} FROM {table} WHERE {condition}"), Vec::new()).await?.len();
        let deleted = self.execute(&format!("DELETE FROM {table} WHERE {condition}"), Vec::new()).await?;
        if (updated, read, deleted) != (1, 1, 1) {
            let text = format!("a row was written to {table}, and {updated} updated, {read} read, {deleted} deleted");
            return Err(StoreError::Unexpected(text));
        }
        Ok(())
    }

    /// Whether rows of a target table may be written: statements that touch no row, for its own constraints and
    /// triggers are none of our business. The caller rolls back.
    pub async fn probe_target(
        &mut self,
        table: &[String],
        columns: &[&str],
        other: Option<&str>,
    ) -> Result<(), StoreError> {
        let dialect = self.dialect();
        let table = dialect.quote_path(table);
        // All of them: MySQL turns a statement away that leaves out a column without a default.
        let columns = columns.iter().map(|column| dialect.quote(column)).collect::<Vec<_>>().join(", ");
        let nothing = format!("FROM {table} WHERE 1 = 0");
        // Of no consequence where no column is `GENERATED ALWAYS AS IDENTITY`.
        let overriding = if dialect == Dialect::Postgres { "OVERRIDING SYSTEM VALUE " } else { "" };
        self.execute(&format!("INSERT INTO {table} ({columns}) {overriding}SELECT {columns} {nothing}"), Vec::new())
            .await?;
        if let Some(other) = other.map(|column| dialect.quote(column)) {
            self.execute(&format!("UPDATE {table} SET {other} = {other} WHERE 1 = 0"), Vec::new()).await?;
        }
        self.execute(&format!("DELETE {nothing}"), Vec::new()).await.map(drop)
    }

    /// Whether the database takes a statement; `render` puts the parameter with an index in its place. Nothing is run.
    /// The caller rolls back.
    pub async fn probe_statement(
        &mut self,
        parameters: usize,
        render: impl Fn(&dyn Fn(usize) -> String) -> String,
    ) -> Result<(), StoreError> {
        let dialect = self.dialect();
        let plain = render(&|index| dialect.placeholder(index));
        match dialect {
            Dialect::Postgres => {
                let types = self.parameters(&plain).await?;
                // To prepare asks for no privilege; to explain does.
                let null = |index: usize| {
                    let of = types.get(index).map_or("text", |parameter| parameter.cast.as_str());
                    format!("CAST(CAST(NULL AS text) AS {of})")
                };
                self.batch(&format!("EXPLAIN {}", render(&null))).await
            }
            Dialect::MySql => {
                // Without backslash escapes, as the session is, doubled quotes are all that a literal needs.
                self.batch(&format!("PREPARE countersign_check FROM '{}'", plain.replace('\'', "''"))).await?;
                self.batch("DEALLOCATE PREPARE countersign_check").await
            }
            Dialect::Sqlite => self.fetch(&format!("EXPLAIN {plain}"), vec![Bind::Null; parameters]).await.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrate::script;

    #[test]
    fn every_table_is_probed() {
        let script = script(Dialect::Sqlite);
        let made: Vec<&str> =
            script.lines().filter_map(|line| line.strip_prefix("CREATE TABLE ")?.split(' ').next()).collect();
        let mut probed: Vec<&str> = PROBES.iter().map(|probe| probe.table).collect();
        probed.sort_unstable();
        let mut made_sorted = made.clone();
        made_sorted.sort_unstable();
        assert_eq!(probed, made_sorted);
    }
}
