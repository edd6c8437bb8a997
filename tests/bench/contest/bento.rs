//! Bento beside it: built from its Go module, fed with the same records.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::meter::{Meter, Score};
use crate::payments::{Payments, look};
use crate::world::{env, run};

/// `tests/bench/run.sh` builds it.
fn binary() -> PathBuf {
    PathBuf::from(env("COUNTERSIGN_STACK_CACHE")).join("bento")
}

/// A dedup row and the ledger row in one statement, message by message, as many at once as it likes.
pub fn atomic(work: &Payments) -> Score {
    let output = r#"
  sql_raw:
    driver: postgres
    dsn: DSN
    query: |
      WITH first AS (INSERT INTO dedup (message_id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING message_id)
      INSERT INTO ledger (message_id, account, amount) SELECT message_id, $2, CAST($3 AS numeric) FROM first
    args_mapping: root = [ @id, this.account, this.amount ]
    max_in_flight: 64
"#;
    measure(work, "bento_atomic", "pipeline: {}", output)
}

/// A key in Redis first, then inserts in batches: what is between the two when it dies is lost.
pub fn gated(work: &Payments) -> Score {
    let processors = r#"
pipeline:
  processors:
    - dedupe:
        cache: seen
        key: ${! @id }
cache_resources:
  - label: seen
    redis:
      url: REDIS
      prefix: TOPIC
"#;
    let output = r#"
  sql_insert:
    driver: postgres
    dsn: DSN
    table: ledger
    columns: [ message_id, account, amount ]
    args_mapping: root = [ @id, this.account, this.amount ]
    max_in_flight: 8
    batching: { count: 2000, period: 100ms }
"#;
    measure(work, "bento_gated", processors, output)
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(work: &Payments, name: &str, processors: &str, output: &str) -> Score {
    let (world, bank, topic) = work.set_up(name);
    bank.run("CREATE TABLE dedup (message_id text PRIMARY KEY)");
    let text = format!(
        r#"
http: {{ enabled: false }}
logger: {{ level: WARN }}
input:
  kafka_franz:
    seed_brokers: [ "BROKERS" ]
    topics: [ "TOPIC" ]
    consumer_group: "TOPIC"
    start_from_oldest: true
    batching: {{ count: 2000, period: 50ms }}
{processors}
output:{output}"#
    );
    let text = text
        .replace("BROKERS", env("COUNTERSIGN_KAFKA"))
        .replace("REDIS", env("COUNTERSIGN_REDIS_URL"))
        .replace("DSN", &format!("\"{}?sslmode=disable\"", bank.url()))
        .replace("TOPIC", &topic);
    let path = world.scratch().join("bento.yaml");
    fs::write(&path, text).unwrap();
    let binary = binary();
    println!("  {}", run(Command::new(&binary).arg("--version")).lines().next().unwrap_or_default());
    let log = fs::File::create(world.scratch().join("bento.log")).unwrap();
    let child = Command::new(&binary).args(["-c", path.to_str().unwrap()]).stdout(Stdio::null()).stderr(log).spawn();
    let bento = Running(child.unwrap());
    // Rows are counted by the statistics of the server: counting them all again and again would be a load.
    let booked = || bank.number("SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'ledger'");
    look(|| booked() > 0, "Bento's first row");
    let (meter, already) = (Meter::start(&[bento.0.id()]), booked());
    look(|| booked() >= work.messages, "Bento's last row");
    let score = meter.stop(work.messages - already);
    assert_eq!(bank.number("SELECT COUNT(*) FROM ledger"), work.messages);
    score
}
