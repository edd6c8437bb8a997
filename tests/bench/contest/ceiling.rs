//! The ceiling: the rows that the daemon has written, written again by set-based statements with nothing in front, and
//! the receipts read and deleted again beside that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use countersign::store::{Bind, Store, StoreError, StoreOptions};

use crate::database::Kind;
use crate::kafka;
use crate::meter::{Meter, Score};
use crate::payments::Run;
use crate::world::block_on;

/// Messages in one transaction, and receipts in one round.
const BATCH: u64 = 2000;

const INBOX: &str = "inbox_key, pipeline, scope, route, message_id, status, digest, attempt_token, correlation_id, \
                     receipt_key, topic, kafka_partition, kafka_offset, received_at, finished_at";

/// In the database of this run, whose tables it empties.
pub fn measure(run: &Run) -> Score {
    stage(run);
    // A file has one writer. Elsewhere one more waits for the disk while others work.
    let workers: &[u64] = if run.bank.kind == Kind::Sqlite { &[1] } else { &[2, 4] };
    let scores = workers.iter().map(|workers| write(run, *workers));
    scores.max_by(|a, b| a.rate.total_cmp(&b.rate)).unwrap()
}

/// Keeps the rows of the run in the order of their keys, each with a receipt as the run has told it.
fn stage(run: &Run) {
    let bank = &run.bank;
    let sample = String::from_utf8(kafka::values(&run.world.topic("receipts")).pop().unwrap()).unwrap();
    let receipt: serde_json::Value = serde_json::from_str(&sample).unwrap();
    let (id, receipt_id) = (receipt["messageId"].as_str().unwrap(), receipt["receiptId"].as_str().unwrap());
    let columns: Vec<String> = INBOX.split(", ").map(|column| format!("i.{column}")).collect();
    bank.run("CREATE INDEX ledger_id ON ledger (message_id)");
    bank.run(&format!(
        "CREATE TABLE staged AS SELECT ROW_NUMBER() OVER (ORDER BY i.inbox_key) AS n, {}, l.account, l.amount, \
         REPLACE('{sample}', '{id}', i.message_id) AS receipt, \
         SUBSTR(i.message_id, {}) AS receipt_id FROM countersign_inbox i JOIN ledger l ON l.message_id = i.message_id",
        columns.join(", "),
        // Of the same length, and as different.
        id.len() - receipt_id.len() + 1,
    ));
    bank.run("CREATE UNIQUE INDEX staged_n ON staged (n)");
    bank.run(&format!("DROP INDEX ledger_id{}", if bank.kind == Kind::MariaDb { " ON ledger" } else { "" }));
    assert_eq!(bank.number("SELECT COUNT(*) FROM staged"), run.messages);
}

fn write(run: &Run, workers: u64) -> Score {
    for table in ["countersign_inbox", "ledger", "countersign_outbox"] {
        // Rows that are deleted one by one are cleared away while the next ones are written.
        let empty = if run.bank.kind == Kind::Sqlite { "DELETE FROM" } else { "TRUNCATE TABLE" };
        run.bank.run(&format!("{empty} {table}"));
    }
    if run.bank.kind == Kind::Postgres {
        ["countersign_inbox", "ledger", "countersign_outbox", "staged"].iter().for_each(|table| {
            run.bank.run(&format!("VACUUM ANALYZE {table}"));
        });
        run.bank.run("CHECKPOINT");
    }
    let options = StoreOptions {
        url: run.bank.url(),
        pool: 2 * workers as u32,
        transaction_timeout: Duration::from_secs(60),
        pooler: false,
    };
    let store = block_on(async { Store::open(&options).unwrap() });
    let meter = Meter::start(&[]);
    let share = run.messages.div_ceil(workers);
    block_on(async {
        let writing = Arc::new(AtomicUsize::new(workers as usize));
        let mut tasks = Vec::new();
        for worker in 0..workers {
            let (from, to) = (worker * share, ((worker + 1) * share).min(run.messages));
            let (writer, relay) = (Ceiling::new(&store, worker), Ceiling::new(&store, worker));
            let (still, done) = (Arc::clone(&writing), Arc::clone(&writing));
            tasks.push(tokio::spawn(async move {
                writer.write(from, to).await.unwrap();
                still.fetch_sub(1, Ordering::SeqCst);
            }));
            tasks.push(tokio::spawn(async move { relay.deliver(&done).await.unwrap() }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    let score = meter.stop(run.messages);
    println!("  ceiling with {workers} writers {:.0}/s", score.rate);
    block_on(store.close());
    score
}

/// One writer or one reader of a lane.
struct Ceiling {
    store: Store,
    lane: u64,
}

impl Ceiling {
    fn new(store: &Store, lane: u64) -> Self {
        Self { store: store.clone(), lane }
    }

    async fn write(&self, from: u64, to: u64) -> Result<(), StoreError> {
        let place = |index| self.store.dialect().placeholder(index);
        let range = format!("FROM staged WHERE n > {} AND n <= {} ORDER BY n", place(0), place(1));
        let effect =
            format!("INSERT INTO ledger (message_id, account, amount) SELECT message_id, account, amount {range}");
        let inbox = format!("INSERT INTO countersign_inbox ({INBOX}) SELECT {INBOX} {range}");
        let outbox = format!(
            "INSERT INTO countersign_outbox (receipt_id, receipt_key, receipt, pipeline, topic, kafka_partition, created_at) \
             SELECT receipt_id, receipt_key, receipt, pipeline, topic, {}, received_at {range}",
            self.lane
        );
        for first in (from..to).step_by(BATCH as usize) {
            let binds = || vec![Bind::Int(first as i64), Bind::Int((first + BATCH).min(to) as i64)];
            let mut tx = self.store.begin().await?;
            for sql in [&inbox, &effect, &outbox] {
                tx.execute(sql, binds()).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }

    /// Until nobody writes any more and nothing is left.
    async fn deliver(&self, writing: &AtomicUsize) -> Result<(), StoreError> {
        let of = format!("FROM countersign_outbox WHERE kafka_partition = {}", self.lane);
        let read = format!(
            "SELECT id, receipt_key, receipt, receipt_id {of} AND pipeline = (SELECT pipeline FROM staged LIMIT 1) \
             AND topic = (SELECT topic FROM staged LIMIT 1) ORDER BY id LIMIT {BATCH}"
        );
        let delete = format!("DELETE {of} AND id <= {}", self.store.dialect().placeholder(0));
        loop {
            let over = writing.load(Ordering::SeqCst) == 0;
            match self.store.read(&read, Vec::new()).await?.last() {
                Some(last) => drop(self.store.write(&delete, vec![Bind::Int(last.int(0)?)]).await?),
                None if over => return Ok(()),
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }
}
