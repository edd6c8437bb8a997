//! The work: payments, one ledger row each, from a topic into a database.

use std::time::{Duration, Instant};

use crate::daemon::{Config, Daemon};
use crate::database::{Database, Kind};
use crate::kafka::{self, Out, Producer};
use crate::meter::{Meter, Score};
use crate::world::{World, holds, until};

#[derive(Clone)]
pub struct Payments {
    pub kind: Kind,
    pub messages: u64,
    pub partitions: i32,
    pub instances: usize,
    /// Of a hundred records, those that are repeats of earlier ones.
    pub duplicates: u64,
    /// Bytes of a value.
    pub payload: usize,
    pub inbox_rows: u64,
    pub gate: &'static str,
    /// A second step that books on a balance.
    pub booking: bool,
    pub order: &'static str,
    /// Each row of the ledger takes a millisecond.
    pub slow: bool,
}

impl Default for Payments {
    fn default() -> Self {
        Self {
            kind: Kind::Postgres,
            messages: 300_000,
            partitions: 6,
            instances: 1,
            duplicates: 0,
            payload: 100,
            inbox_rows: 0,
            gate: "redis",
            booking: false,
            order: "partition",
            slow: false,
        }
    }
}

/// What is left of a run, for others to be measured on the same rows.
pub struct Run {
    pub world: World,
    pub bank: Database,
    pub messages: u64,
    pub score: Score,
}

/// How often everything comes again where nothing else comes.
const REPEATS: u64 = 8;

/// Longest time for one piece of work.
pub const PATIENCE: u64 = 900;

impl Payments {
    /// Topics and tables, with the records in the topic.
    pub fn set_up(&self, name: &str) -> (World, Database, String) {
        let world = World::new(name);
        let topic = world.topic("payments");
        kafka::create(&topic, self.partitions, &[]);
        let bank = self.bank(&world);
        self.send(&topic, 0..self.messages);
        (world, bank, topic)
    }

    pub fn bank(&self, world: &World) -> Database {
        let bank = world.database(self.kind, "bank");
        let text = if self.kind == Kind::MariaDb { "varchar(64)" } else { "text" };
        bank.run(&format!(
            "CREATE TABLE ledger (message_id {text} NOT NULL, account {text} NOT NULL, amount numeric(12,2) NOT NULL)"
        ));
        if self.slow {
            bank.run(
                "CREATE FUNCTION takes_time() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN PERFORM pg_sleep(0.001); RETURN NEW; END $$",
            );
            bank.run("CREATE TRIGGER slow BEFORE INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION takes_time()");
        }
        bank.run(&format!("CREATE TABLE accounts (id {text} PRIMARY KEY, balance numeric(14,2) NOT NULL)"));
        for n in 0..100 {
            bank.run(&format!("INSERT INTO accounts VALUES ('b-{n}', 100000000)"));
        }
        bank
    }

    /// Sends the payments with these numbers, and repeats among them.
    pub fn send(&self, topic: &str, numbers: std::ops::Range<u64>) {
        let producer = Producer::new(&[]);
        for number in numbers {
            // Spread evenly, and never a repeat of what does not exist yet.
            let repeats = self.duplicates < 100 && number > 1000 && number * 37 % 100 < self.duplicates;
            send(&producer, topic, if repeats { number / 100 * 100 - 100 } else { number }, self.payload);
        }
        producer.flush();
    }

    pub fn config(&self, world: &World, bank: &Database, topic: &str) -> Config {
        let balance = r#", { sql = "UPDATE accounts SET balance = balance - :amount WHERE id = :bank AND balance >= :amount", expect_rows = 1, otherwise = "reject" }"#;
        let booking = if self.booking { balance } else { "" };
        let order = self.order;
        let route = format!(
            r#"
[[route]]
name = "charge"
message_id = "header:id"
correlation_id = "value:orderId"
order = "{order}"
[route.effect]
kind = "sql"
steps = [{{ sql = "INSERT INTO ledger (message_id, account, amount) VALUES (:meta.messageId, :account, :amount)" }}{booking}]
"#
        );
        let mut config = world.pipeline(bank, &[topic], &route);
        if self.gate != "redis" {
            config.gate = self.gate.to_owned();
        }
        config
    }

    /// From the first outcome to the last receipt.
    pub fn run(&self, name: &str) -> Run {
        let (world, bank, topic) = self.set_up(name);
        kafka::create(&world.topic("receipts"), self.partitions, &[]);
        let config = self.config(&world, &bank, &topic);
        config.migrate();
        if self.inbox_rows > 0 {
            fill(&bank, self.inbox_rows);
        }
        let mut before = 0;
        if self.duplicates == 100 {
            // Everything once before, and then nothing but repeats.
            let daemon = Daemon::start(&config);
            until_applied(&bank, self.messages);
            until_delivered(&bank);
            daemon.terminate(30);
            before = self.messages;
            // More of them, for they take little time.
            (0..REPEATS).for_each(|_| self.send(&topic, 0..self.messages));
        }
        let records = before + if self.duplicates == 100 { REPEATS } else { 1 } * self.messages;
        let daemons: Vec<Daemon> = (0..self.instances).map(|_| Daemon::start(&config)).collect();
        let pids: Vec<u32> = daemons.iter().map(Daemon::pid).collect();
        until(60, "the first outcome", || holds(bank.progress() > before, || "none".to_owned()));
        let (meter, already) = (Meter::start(&pids), bank.progress());
        until_applied(&bank, records);
        let applied = meter.stop(records - already).rate;
        until_delivered(&bank);
        let score = meter.stop(records - already);
        println!("  applied {applied:.0}/s, told {:.0}/s", score.rate);
        for daemon in daemons {
            daemon.terminate(30);
        }
        Run { world, bank, messages: self.messages, score }
    }
}

pub fn until_applied(bank: &Database, records: u64) {
    look(|| bank.progress() >= records, "the last outcome");
}

pub fn until_delivered(bank: &Database) {
    look(
        || {
            bank.number("SELECT COUNT(*) FROM (SELECT id FROM countersign_outbox ORDER BY id DESC LIMIT 1) AS newest")
                == 0
        },
        "receipts",
    );
}

/// Looks seldom enough not to be a load itself.
pub fn look(mut done: impl FnMut() -> bool, what: &str) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed().as_secs() < PATIENCE, "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn message_id(number: u64) -> String {
    format!("01934f2e-7a3b-7000-8000-{number:012}")
}

pub fn send(producer: &Producer, topic: &str, number: u64, payload: usize) {
    let (id, account) = (message_id(number), format!("a-{}", number % 997));
    let (cents, bank) = (number % 100, number % 100);
    let mut value = format!(
        r#"{{"orderId":"o-{number}","account":"{account}","amount":"{}.{cents:02}","bank":"b-{bank}""#,
        number % 90
    );
    let more = payload.saturating_sub(value.len() + r#","note":""}"#.len());
    if more > 0 {
        value.push_str(r#","note":""#);
        value.extend(std::iter::repeat_n('n', more));
        value.push('"');
    }
    value.push('}');
    producer.send(&Out {
        topic,
        key: &format!("\"{account}\""),
        headers: &[("id", &id), ("eventType", "PaymentRequested")],
        value: &value,
        ..Out::default()
    });
}

/// Rows of other messages, in the order of their ids as they would have come.
fn fill(bank: &Database, rows: u64) {
    bank.run(&format!(
        "INSERT INTO countersign_inbox (inbox_key, pipeline, scope, route, message_id, status, digest, attempt_token, \
         correlation_id, receipt_key, topic, kafka_partition, kafka_offset, received_at, finished_at) \
         SELECT convert_to('before' || '01934f2e-7a3b-6000-8000-' || lpad(n::text, 12, '0'), 'UTF8'), 'before', '', \
         'charge', '01934f2e-7a3b-6000-8000-' || lpad(n::text, 12, '0'), 'SUCCESS', repeat(md5(n::text), 2), n, \
         'o-' || n, 'o-' || n, 'before', n % 6, n, now() - interval '1 day', now() - interval '1 day' \
         FROM generate_series(1, {rows}) n"
    ));
    bank.run("VACUUM ANALYZE countersign_inbox");
    bank.run("CHECKPOINT");
}
