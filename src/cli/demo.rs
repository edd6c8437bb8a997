//! `demo`: the main job on recorded events, with no services: an in-process broker, SQLite, the in-process gate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header as KafkaHeader, Message as _, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{FutureProducer, FutureRecord};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::summary::Summary;
use super::{Done, Failure, Output, output, start_logs};
use crate::app::{Pipeline, open_store};
use crate::config::{Config, Host, LogFormat, LogOptions};
use crate::decision::RecordOutcome;
use crate::http::{self, HttpState};
use crate::kafka::client::check_option;
use crate::metrics::Metrics;
use crate::pipeline::Observed;
use crate::record::Record;
use crate::record_line;
use crate::store::{Store, StoreError};

#[derive(Args)]
pub struct DemoArgs {
    /// Where the demo's files go; an earlier demo's files there are replaced.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keeps the HTTP side up afterwards, until it is interrupted.
    #[arg(long)]
    serve: bool,
    /// Where `--serve` listens.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: std::net::SocketAddr,
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Real events of real connectors: payments through an outbox, orders mirrored from a table, everything once more after
/// the connector was killed, a conflict, a poison record, a payment that the account cannot cover.
const EVENTS: &str = include_str!("../../tests/fixtures/demo.jsonl");
const CONFIG: &str = include_str!("demo.toml");
const TABLES: &str = include_str!("demo.sql");
const RECEIPTS: &str = "payments.receipts";
const PARTITIONS: i32 = 6;
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn run(args: &DemoArgs) -> Done {
    start_logs(&LogOptions { format: LogFormat::Text, level: "error".to_owned() });
    let dir = args.dir.clone().unwrap_or_else(|| std::env::temp_dir().join("countersign-demo"));
    let began = Instant::now();
    let records = events()?;
    let broker = MockCluster::new(1).map_err(failed("the in-process broker"))?;
    let topics: BTreeSet<&str> = records.iter().map(|record| &*record.position.topic).chain([RECEIPTS]).collect();
    for topic in topics {
        broker.create_topic(topic, PARTITIONS, 1).map_err(failed("a topic"))?;
    }
    let config = prepare(&dir, &broker.bootstrap_servers())?;
    let store = open_store(&config)?;
    make_tables(&store).await?;
    produce(&broker.bootstrap_servers(), &records).await?;

    let metrics = Metrics::new();
    let mut pipeline = Pipeline::new(config, metrics.clone())?;
    let (sender, mut observed) = mpsc::unbounded_channel();
    pipeline.observe(sender);
    let view = pipeline.view().clone();
    let stop = CancellationToken::new();
    let running = tokio::spawn(pipeline.run(stop.clone()));
    let seen = watch(&mut observed, &store, records.len()).await?;
    let receipts = read_receipts(&broker.bootstrap_servers(), &dir)?;
    let seconds = began.elapsed().as_secs_f64();

    let summary = summary(&seen, receipts, seconds);
    match args.output {
        Output::Json => output::print(&summary.json()),
        Output::Text => tell(&seen, &summary, &store, &dir).await?,
    }
    if args.serve {
        let listener = http::bind(args.listen).await.map_err(failed("http"))?;
        eprintln!("http://{} answers until you press Ctrl-C, for example /v1/receipts/{FIRST}", args.listen);
        let state = std::sync::Arc::new(HttpState { pipelines: vec![view], metrics, tokens: Vec::new() });
        let until = stop.clone();
        tokio::spawn(async move {
            let _ = tokio::signal::ctrl_c().await;
            until.cancel();
        });
        http::serve(listener, state, stop.clone()).await.map_err(failed("http"))?;
    }
    stop.cancel();
    match tokio::time::timeout(Duration::from_secs(10), running).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => Err(error.into()),
        Ok(Err(error)) => Err(Failure::Failed(format!("the pipeline ended badly: {error}"))),
        Err(_) => Err(Failure::Failed("the pipeline did not end".to_owned())),
    }
}

const FIRST: &str = "00000000-0000-7000-8000-000000000001";

fn failed<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::Failed(format!("{what}: {error}"))
}

fn events() -> Result<Vec<Record>, Failure> {
    EVENTS.lines().map(|line| record_line::read(line).map_err(failed("a recorded event"))).collect()
}

/// The folder with a configuration that the other commands can use afterwards.
fn prepare(dir: &Path, brokers: &str) -> Result<Config, Failure> {
    std::fs::create_dir_all(dir).map_err(failed("the demo's folder"))?;
    for file in ["demo.db", "demo.db-wal", "demo.db-shm", "receipts.jsonl"] {
        match std::fs::remove_file(dir.join(file)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed("an old file")(error)),
            _ => {}
        }
    }
    let text = CONFIG.replace("BROKERS", brokers).replace("DATABASE", &dir.join("demo.db").display().to_string());
    let file = dir.join("countersign.toml");
    std::fs::write(&file, &text).map_err(failed("the demo's configuration"))?;
    let host = Host { env: &|_| None, kafka_option: &check_option };
    Config::parse(&text, &file.display().to_string(), host).map_err(|faults| Failure::Usage(faults.to_string()))
}

async fn make_tables(store: &Store) -> Result<(), StoreError> {
    store.migrate(&crate::pipeline::unique_word()).await?;
    let mut tx = store.begin().await?;
    tx.batch(TABLES).await?;
    tx.commit().await
}

async fn produce(brokers: &str, records: &[Record]) -> Result<(), Failure> {
    let producer: FutureProducer =
        ClientConfig::new().set("bootstrap.servers", brokers).create().map_err(failed("the producer"))?;
    for record in records {
        let mut headers = OwnedHeaders::new();
        for header in &record.headers {
            headers = headers.insert(KafkaHeader { key: &header.name, value: header.value.as_deref() });
        }
        let mut message: FutureRecord<'_, [u8], [u8]> =
            FutureRecord::to(&record.position.topic).partition(record.position.partition).headers(headers);
        message.key = record.key.as_deref();
        message.payload = record.value.as_deref();
        message.timestamp = record.timestamp_ms;
        producer.send(message, PATIENCE).await.map_err(|(error, _)| failed("a record")(error))?;
    }
    Ok(())
}

/// Waits until every record has its outcome and every receipt is delivered.
async fn watch(
    observed: &mut mpsc::UnboundedReceiver<Observed>,
    store: &Store,
    count: usize,
) -> Result<Vec<Observed>, Failure> {
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut seen = Vec::with_capacity(count);
    while seen.len() < count {
        match tokio::time::timeout_at(until, observed.recv()).await {
            Ok(Some(one)) => seen.push(one),
            Ok(None) | Err(_) => {
                return Err(Failure::Failed(format!("only {} of {count} records were seen", seen.len())));
            }
        }
    }
    while store.count_pending("payments").await? > 0 {
        if tokio::time::Instant::now() > until {
            return Err(Failure::Failed("the receipts were not delivered".to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(seen)
}

/// Reads the receipts back from their topic into a file; the answer is how many there are.
fn read_receipts(brokers: &str, dir: &Path) -> Result<usize, Failure> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "demo-receipts")
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "true")
        .create()
        .map_err(failed("the receipts"))?;
    let mut list = rdkafka::TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(RECEIPTS, partition, rdkafka::Offset::Beginning).map_err(failed("the receipts"))?;
    }
    consumer.assign(&list).map_err(failed("the receipts"))?;
    let (mut lines, mut ends) = (Vec::new(), 0);
    let until = Instant::now() + PATIENCE;
    while ends < PARTITIONS && Instant::now() < until {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                lines.push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned())
            }
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => ends += 1,
            Some(Err(error)) => return Err(failed("the receipts")(error)),
            None => {}
        }
    }
    lines.push(String::new());
    std::fs::write(dir.join("receipts.jsonl"), lines.join("\n")).map_err(failed("the receipts' file"))?;
    Ok(lines.len() - 1)
}

fn summary(seen: &[Observed], receipts: usize, seconds: f64) -> Summary {
    let mut summary = Summary { receipts, ..Summary::default() };
    seen.iter().for_each(|one| summary.count(one.outcome));
    summary.took(seconds);
    summary
}

async fn tell(seen: &[Observed], summary: &Summary, store: &Store, dir: &Path) -> Done {
    output::print("What came in, and what was done (real events of a killed and restarted connector):\n");
    let mut seen: Vec<&Observed> = seen.iter().collect();
    seen.sort_by_key(|one| (one.position.topic.clone(), one.position.partition, one.position.offset));
    let rows: Vec<Vec<String>> = seen
        .iter()
        .map(|one| {
            vec![
                one.position.to_string(),
                one.op.unwrap_or("").to_owned(),
                one.message_id.clone().unwrap_or_default(),
                one.outcome.as_str().to_owned(),
                why(one),
            ]
        })
        .collect();
    output::table(&["RECORD", "OP", "MESSAGE", "OUTCOME", "WHY"], &rows);
    output::print("\nThe business tables afterwards:\n");
    let mut balances = Vec::new();
    for row in store.read("SELECT id, CAST(balance AS TEXT) FROM accounts ORDER BY id", Vec::new()).await? {
        balances.push(format!("{} {}", row.text(0)?, row.text(1)?));
    }
    output::print(&format!("  accounts     {}", balances.join(", ")));
    for (table, what) in [("ledger", "one row a payment, none twice"), ("orders_copy", "equal to the source table")] {
        let rows = store.read(&format!("SELECT COUNT(*) FROM {table}"), Vec::new()).await?;
        let count = rows.first().map_or(Ok(0), |row| row.int(0))?;
        output::print(&format!("  {table:<12} {count} rows: {what}"));
    }
    output::print(&format!("\n{}", summary.text()));
    let file = dir.join("countersign.toml");
    let config = file.display();
    output::print(&format!(
        "\nLook around:\n  {receipts}  the receipts as they were pushed\n  countersign explain -c {config} 00000000-0000-7000-8000-000000000003\n  \
         countersign receipts get -c {config} {FIRST}\n  countersign dead-letters list -c {config}\n  \
         sqlite3 {database} 'SELECT * FROM countersign_inbox'",
        receipts = dir.join("receipts.jsonl").display(),
        database = dir.join("demo.db").display(),
    ));
    Ok(())
}

fn why(one: &Observed) -> String {
    let reason = one.reason.as_deref().unwrap_or("");
    match one.outcome {
        RecordOutcome::Applied => "effect, dedup row and receipt in one transaction".to_owned(),
        RecordOutcome::Duplicate => "its dedup row is there: no second effect".to_owned(),
        RecordOutcome::Skipped => format!("no business event: {reason}"),
        RecordOutcome::Rejected => format!("an answer, not a fault: {reason}"),
        RecordOutcome::Parked => format!("kept as a dead letter: {reason}"),
        RecordOutcome::Conflict => "the id came before with other content: parked, an alarm".to_owned(),
    }
}
