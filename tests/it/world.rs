//! One test's world: a broker, a database and names of its own, and pipelines that run in this process.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use countersign::app::Pipeline;
use countersign::config::{Config, Host};
use countersign::decision::RecordOutcome;
use countersign::kafka::client::check_option;
use countersign::metrics::Metrics;
use countersign::pipeline::Observed;
use countersign::receipt::Receipt;
use countersign::store::lanes::{LaneKey, LaneRow};
use countersign::supervisor::{PipelineView, Readiness, report};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::broker::{Broker, Rec, SESSION_MS};
use crate::database::{Database, Engine};
use crate::wait::{PATIENCE, until, until_within};

pub const PARTITIONS: i32 = 2;

pub struct World {
    pub name: String,
    pub topic: String,
    pub receipts: String,
    pub broker: Broker,
    pub db: Database,
}

/// Runs a property on each of these engines at once, each in a world and a thread of its own: the mock cluster stays
/// with the thread that made it.
pub fn on<F, W>(engines: &[Engine], property: F)
where
    F: Fn(Rc<World>) -> W + Sync,
    W: Future<Output = ()>,
{
    on_each(engines, |engine| alone(engine, &property));
}

/// Runs a test on each of these engines at once, each in a thread of its own, and names those on which it failed.
pub fn on_each(engines: &[Engine], test: impl Fn(Engine) + Sync) {
    let failed: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = engines.iter().map(|engine| scope.spawn(|| test(*engine))).collect();
        let ended = engines.iter().zip(threads).map(|(engine, thread)| (engine, thread.join()));
        ended.filter(|(_, ended)| ended.is_err()).map(|(engine, _)| format!("{engine:?}")).collect()
    });
    assert!(failed.is_empty(), "failed on {}", failed.join(" and "));
}

fn alone<F, W>(engine: Engine, property: &F)
where
    F: Fn(Rc<World>) -> W,
    W: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let world = Rc::new(runtime.block_on(World::new(engine)));
    let test = property(Rc::clone(&world));
    // A failed test leaves its database behind no more than a good one.
    let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test)));
    if ended.is_err() {
        eprintln!("^ on {engine:?}");
    }
    runtime.block_on(world.db.remove());
    runtime.shutdown_timeout(Duration::from_secs(2));
    if let Err(panic) = ended {
        resume_unwind(panic);
    }
}

/// A property that holds on every database.
pub fn everywhere<F, W>(property: F)
where
    F: Fn(Rc<World>) -> W + Sync,
    W: Future<Output = ()>,
{
    on(&Engine::ALL, property);
}

static WORLDS: AtomicU32 = AtomicU32::new(0);

impl World {
    async fn new(engine: Engine) -> Self {
        let name = Self::new_name();
        let db = Database::create(engine, &name).await;
        Self::around(name, db)
    }

    /// With a database on a server of the caller's own.
    #[allow(dead_code, reason = "the crash suite has such servers")]
    pub async fn on_server(address: &str, engine: Engine) -> Self {
        let name = Self::new_name();
        let db = Database::create_on(address, engine, &name).await;
        Self::around(name, db)
    }

    fn new_name() -> String {
        format!("it_{}_{}", std::process::id(), WORLDS.fetch_add(1, Ordering::Relaxed))
    }

    fn around(name: String, db: Database) -> Self {
        let broker = Broker::start();
        let (topic, receipts) = (format!("{name}.events"), format!("{name}.receipts"));
        broker.create_topic(&topic, PARTITIONS);
        broker.create_topic(&receipts, PARTITIONS);
        Self { name, topic, receipts, broker, db }
    }

    /// The text of a configuration. `rest` has its routes and other sections; `TOPIC` stands for the topic.
    pub fn config(&self, rest: &str) -> String {
        let (name, topic, receipts) = (&self.name, &self.topic, &self.receipts);
        format!(
            "[pipeline]\nname = \"{name}\"\n\
             [kafka]\nbrokers = \"{}\"\ntopics = [\"{topic}\"]\n\
             [kafka.options]\n\"session.timeout.ms\" = {SESSION_MS}\n\"heartbeat.interval.ms\" = 500\n\
             [store]\nurl = \"{}\"\n\
             [receipts]\ntopic = \"{receipts}\"\n{}",
            self.broker.address(),
            self.db.url,
            rest.replace("TOPIC", topic)
        )
    }

    /// The configuration as a file.
    pub fn file(&self, text: &str) -> PathBuf {
        // A name of its own: the last one may still be about to be read.
        static FILES: AtomicU32 = AtomicU32::new(0);
        let file = self.db.dir.path().join(format!("{}.toml", FILES.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Starts a pipeline in this process.
    pub async fn start(&self, rest: &str) -> Running {
        Running::start(&self.config(rest))
    }

    pub async fn send(&self, records: &[Rec]) {
        self.broker.send(&self.topic, records).await;
    }

    pub fn lane_key(&self, partition: i32) -> LaneKey {
        LaneKey { pipeline: self.name.as_str().into(), topic: self.topic.as_str().into(), partition }
    }

    pub async fn lane(&self, partition: i32) -> Option<LaneRow> {
        self.db.store.lane(&self.lane_key(partition)).await.unwrap()
    }

    pub fn committed(&self, partition: i32) -> Option<(i64, String)> {
        self.broker.committed(&self.name, &self.topic, partition)
    }

    /// Parks the record at which a lane stands.
    pub async fn skip_record(&self, partition: i32) -> bool {
        let at = self.lane(partition).await.unwrap().next_offset;
        self.db.store.skip_record(&self.lane_key(partition), at).await.unwrap()
    }

    /// Waits until the outbox is empty, then reads every receipt that was pushed.
    pub async fn pushed(&self) -> Vec<Receipt> {
        until("an empty outbox", || async { (self.db.count("FROM countersign_outbox").await == 0).then_some(()) })
            .await;
        let records = self.broker.read_all(&self.receipts, PARTITIONS);
        records.iter().map(|record| serde_json::from_slice(record.value.as_deref().unwrap()).unwrap()).collect()
    }

    /// The ids of all receipts that were pushed: one that came again has the same.
    pub async fn receipt_ids(&self) -> BTreeSet<String> {
        self.pushed().await.into_iter().map(|receipt| receipt.receipt_id).collect()
    }

    /// Every pushed receipt as `ID STATUS CODE`, sorted.
    pub async fn pushed_in_short(&self) -> Vec<String> {
        let mut short: Vec<String> = self.pushed().await.iter().map(in_short).collect();
        short.sort();
        short
    }

    /// The inbox as `ID|STATUS|CODE`, sorted by id.
    pub async fn inbox(&self) -> Vec<String> {
        let mut rows = self.db.rows("message_id, status, code", "FROM countersign_inbox").await;
        rows.sort();
        rows
    }

    /// Parked records as `OFFSET|ID|CLASS|CODE`, in the order of their parking.
    pub async fn dead_letters(&self) -> Vec<String> {
        self.db.rows("kafka_offset, message_id, class, code", "FROM countersign_dead_letters ORDER BY id").await
    }
}

pub fn in_short(receipt: &Receipt) -> String {
    let id = receipt.message_id.as_deref().unwrap_or("-");
    let status = format!("{:?}", receipt.status).to_uppercase();
    format!("{id} {status} {}", receipt.code.as_deref().unwrap_or("-"))
}

/// A pipeline at work in this process.
pub struct Running {
    pub metrics: Metrics,
    pub view: PipelineView,
    stop: CancellationToken,
    task: JoinHandle<()>,
    observed: Mutex<(mpsc::UnboundedReceiver<Observed>, Vec<Observed>)>,
}

pub fn parse(text: &str) -> Config {
    let host = Host { env: &|_| None, kafka_option: &check_option };
    Config::parse(text, "it.toml", host).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

impl Running {
    pub fn start(text: &str) -> Self {
        // With the output of the test: shown if it fails.
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_test_writer().try_init();
        let (config, metrics) = (parse(text), Metrics::new());
        let mut pipeline = Pipeline::new(config, metrics.clone()).unwrap();
        let (sender, receiver) = mpsc::unbounded_channel();
        pipeline.observe(sender);
        let view = pipeline.view().clone();
        let stop = CancellationToken::new();
        let running = pipeline.run(stop.clone());
        let task = tokio::spawn(async move { running.await.unwrap() });
        Self { metrics, view, stop, task, observed: Mutex::new((receiver, Vec::new())) }
    }

    /// Waits until this many records have their outcome since the start, and gives all of them in the order of commits.
    pub async fn seen(&self, count: usize) -> Vec<Observed> {
        let mut observed = self.observed.lock().await;
        let (receiver, seen) = &mut *observed;
        while seen.len() < count {
            match tokio::time::timeout(PATIENCE, receiver.recv()).await {
                Ok(Some(one)) => seen.push(one),
                Ok(None) | Err(_) => {
                    let lanes = self.view.lanes.reports();
                    panic!(
                        "only {} of {count} records were seen ({})\n{lanes:?}\n{:?}",
                        seen.len(),
                        tally(seen),
                        self.reasons()
                    )
                }
            }
        }
        while let Ok(one) = receiver.try_recv() {
            seen.push(one);
        }
        seen.clone()
    }

    /// Waits for this many records and compares the outcomes of all, as [`tally`] writes them, with the counters.
    pub async fn outcomes(&self, count: usize, expected: &str) -> Vec<Observed> {
        let seen = self.seen(count).await;
        assert_eq!(tally(&seen), expected, "{:#?}", why(&seen));
        // An observer hears of a record a moment before it is counted.
        let what = format!("the counters to say {expected}, they say {}", self.counted());
        until_within(Duration::from_secs(5), &what, || async { (self.counted() == expected).then_some(()) }).await;
        seen
    }

    /// The counters in the form of [`tally`].
    pub fn counted(&self) -> String {
        let families = self.metrics.render();
        let count = |outcome: &RecordOutcome| {
            let label = format!("outcome=\"{}\"", outcome.as_str());
            let lines = families.lines().filter(|line| line.starts_with("countersign_records_total{"));
            lines.filter(|line| line.contains(&label)).map(|line| value_of(line) as usize).sum()
        };
        in_words(RecordOutcome::ALL.iter().map(|outcome| (outcome.as_str(), count(outcome))))
    }

    /// The sum of all series of a metric whose labels contain this text.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let text = self.metrics.render();
        let lines = text.lines().filter(|line| {
            let rest = line.strip_prefix("countersign_").and_then(|line| line.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with('{') && rest.contains(label))
        });
        lines.map(value_of).sum()
    }

    pub fn reasons(&self) -> (Readiness, Vec<String>) {
        let mut report = report(std::slice::from_ref(&self.view));
        let pipeline = report.pipelines.remove(0);
        (pipeline.status, pipeline.reasons)
    }

    /// Waits until readiness has this status and a reason that contains the text.
    pub async fn stands(&self, status: Readiness, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (now, reasons) = self.reasons();
            if now == status && reasons.iter().any(|reason| reason.contains(text)) {
                return;
            }
            assert!(Instant::now() < deadline, "not {status:?} because of {text:?} but {now:?}: {reasons:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn ready(&self) {
        until("readiness", || async { (self.reasons().0 == Readiness::Ready).then_some(()) }).await;
    }

    /// As a crash would end it: wherever it is, without a last word.
    pub async fn stop_hard(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// An orderly end.
    pub async fn stop(self) {
        self.stop.cancel();
        match tokio::time::timeout(Duration::from_secs(20), self.task).await {
            Ok(ended) => ended.unwrap(),
            Err(_) => panic!("the pipeline does not end"),
        }
    }
}

/// A port that was free a moment ago.
fn value_of(line: &str) -> f64 {
    line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).unwrap_or(0.0)
}

/// Outcomes as `applied=3 duplicate=1`; what did not happen is left out.
pub fn tally(seen: &[Observed]) -> String {
    let count = |outcome: &RecordOutcome| seen.iter().filter(|one| one.outcome == *outcome).count();
    in_words(RecordOutcome::ALL.iter().map(|outcome| (outcome.as_str(), count(outcome))))
}

fn in_words<'a>(counts: impl Iterator<Item = (&'a str, usize)>) -> String {
    let words: Vec<String> = counts.filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name}={n}")).collect();
    words.join(" ")
}

fn why(seen: &[Observed]) -> Vec<String> {
    seen.iter().map(|one| format!("{} {} {:?}", one.position, one.outcome.as_str(), one.reason)).collect()
}
