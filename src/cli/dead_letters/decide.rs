//! `dead-letters redrive` and `discard`: an operator's decisions.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::super::input::Meter;
use super::super::progress::Progress;
use super::super::replay::{Signals, last_receipts};
use super::super::{Done, Failure, OneConfig, Output, load_one, output, start_logs};
use super::FilterArgs;
use crate::app::{Replayer, lookup, open_store};
use crate::config::{Config, LogOptions};
use crate::redrive::{Fate, RedriveError, Redriven, Redriver, Wish, held};
use crate::store::Store;
use crate::store::dead_letters::{Filter, Place};
use crate::store::inbox::Status;
use crate::store::inbox_entries::InboxEntry;

/// Which dead letters, and who decides.
#[derive(Args)]
struct Chosen {
    /// Numbers of dead letters.
    #[arg(value_name = "NUMBER")]
    ids: Vec<i64>,
    #[command(flatten)]
    filter: FilterArgs,
    /// All open ones, if neither numbers nor a filter are given.
    #[arg(long)]
    all: bool,
    /// At most so many, in the order of their records.
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Shows what would be done, and changes nothing.
    #[arg(long)]
    dry_run: bool,
    /// Who decides, for the audit; by default the user of this shell.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    #[command(flatten)]
    one: OneConfig,
}

#[derive(Args)]
pub struct RedriveArgs {
    #[command(flatten)]
    chosen: Chosen,
    /// Why, for the audit.
    #[arg(long)]
    why: Option<String>,
    /// So many a second at most: `50/s`.
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate: Option<Duration>,
    /// Applies the content of this file in the place of the record's value; `-` is standard input. The value as it came
    /// stays with the dead letter.
    #[arg(long, value_name = "FILE")]
    payload: Option<PathBuf>,
}

#[derive(Args)]
pub struct DiscardArgs {
    #[command(flatten)]
    chosen: Chosen,
    /// Why, for the audit.
    #[arg(long)]
    why: String,
}

/// The time between two of them.
fn rate(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix("/s").unwrap_or(text).trim().parse::<f64>().ok();
    let number = number.filter(|number| *number > 0.0 && number.is_finite());
    number.map(|number| Duration::from_secs_f64(1.0 / number)).ok_or_else(|| "write it like 50/s".to_owned())
}

impl Chosen {
    /// Numbers are taken as they are, so that each of them is answered; a filter takes the open ones.
    async fn places(&self, store: &Store, pipeline: &str) -> Result<(Vec<Place>, Vec<i64>), Failure> {
        if self.ids.is_empty() && self.filter.is_empty() && !self.all {
            let text = "say which dead letters: by number, by a filter, or `--all`";
            return Err(Failure::Usage(text.to_owned()));
        }
        let mut filter = Filter { ids: self.ids.clone(), ..self.filter.filter() };
        if self.ids.is_empty() {
            filter.status = Some("open".to_owned());
        }
        if let Some(limit) = self.limit {
            filter.limit = i64::from(limit);
        }
        let places = store.dead_letter_places(pipeline, &filter).await?;
        let found: HashSet<i64> = places.iter().map(|place| place.id).collect();
        let missing = self.ids.iter().copied().filter(|id| !found.contains(id)).collect();
        Ok((places, missing))
    }

    fn by(&self) -> String {
        let user = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
        self.by.clone().or_else(user).filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned())
    }
}

/// What is printed at the end.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    dry_run: bool,
    /// How many of each fate; together `letters`.
    counts: BTreeMap<&'static str, usize>,
    letters: Vec<Redriven>,
}

impl Report {
    fn new(dry_run: bool, letters: Vec<Redriven>) -> Self {
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for letter in &letters {
            *counts.entry(letter.fate.as_str()).or_default() += 1;
        }
        Self { dry_run, counts, letters }
    }

    fn print(&self, to: Output) {
        if to == Output::Json {
            return output::json(self);
        }
        let rows: Vec<Vec<String>> = self.letters.iter().map(row).collect();
        if !rows.is_empty() {
            output::table(&["ID", "MESSAGE", "POSITION", "FATE", "VERSION", "CODE", "REASON"], &rows);
        }
        let counts =
            Fate::ALL.iter().filter_map(|fate| Some(format!("{} {}", self.counts.get(fate.as_str())?, fate.as_str())));
        let counts = counts.collect::<Vec<_>>().join(" + ");
        let counts = if counts.is_empty() { "nothing matches".to_owned() } else { counts };
        let dry = if self.dry_run { "; nothing was changed (--dry-run)" } else { "" };
        output::print(&format!("{} dead letters = {counts}{dry}", self.letters.len()));
    }

    /// Every letter is closed now, or would be.
    fn is_done(&self) -> bool {
        self.letters.iter().all(|letter| letter.fate.is_done())
    }
}

fn row(letter: &Redriven) -> Vec<String> {
    vec![
        letter.id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
        letter.message_id.clone().unwrap_or_default(),
        format!("{}/{}/{}", letter.topic, letter.partition, letter.offset),
        letter.fate.as_str().to_owned(),
        letter.version.map(|version| version.to_string()).unwrap_or_default(),
        letter.code.clone().unwrap_or_default(),
        letter.reason.clone().unwrap_or_default(),
    ]
}

fn missing(id: i64) -> Redriven {
    Redriven {
        id: Some(id),
        message_id: None,
        topic: String::new(),
        partition: 0,
        offset: 0,
        fate: Fate::Missing,
        code: None,
        reason: Some("there is no such dead letter in this pipeline".to_owned()),
        version: None,
        receipt_id: None,
    }
}

impl From<RedriveError> for Failure {
    fn from(error: RedriveError) -> Self {
        match error {
            RedriveError::Store(error) => error.into(),
            RedriveError::Unreachable(why) => Self::Unreachable(why),
            RedriveError::Setup(why) => Self::Failed(why),
        }
    }
}

pub async fn redrive(args: &RedriveArgs) -> Done {
    let config = load_one(&args.chosen.one)?;
    start_logs(&LogOptions { level: "error,librdkafka=error".to_owned(), ..config.log.clone() });
    let edited = match &args.payload {
        Some(_) if args.chosen.ids.len() != 1 => {
            return Err(Failure::Usage("`--payload` is for one dead letter: name its number".to_owned()));
        }
        Some(file) => Some(payload(file)?),
        None => None,
    };
    let stop = CancellationToken::new();
    let replayer = Replayer::new(&config, stop.clone())?;
    replayer.ready().await?;
    let (places, absent) = args.chosen.places(replayer.store(), &config.pipeline.name).await?;
    let signals = Signals::new(&stop)?;
    let wish = Wish { edited, by: args.chosen.by(), why: args.why.clone(), dry_run: args.chosen.dry_run };
    let relay_stop = CancellationToken::new();
    let relay = if wish.dry_run { None } else { replayer.relay(relay_stop.clone()) };

    let mut work = Work { redriver: replayer.redriver(), letters: absent.into_iter().map(missing).collect() };
    let mut ended = work.run(&places, &wish, args.rate, &stop).await;
    if let (Ok(()), true, Some(id)) = (&ended, places.is_empty(), &args.chosen.filter.message_id) {
        ended = work.waiting(&config, replayer.store(), id, &wish).await;
    }
    let interrupted = signals.first.is_cancelled();
    last_receipts(&replayer, &config, &signals, (relay, &relay_stop)).await;
    replayer.close().await;
    let report = Report::new(wish.dry_run, work.letters);
    report.print(args.chosen.one.output);
    ended?;
    if interrupted {
        return Err(Failure::Failed("interrupted: run it again for the rest".to_owned()));
    }
    if report.is_done() { Ok(()) } else { Err(Failure::Problems) }
}

fn payload(file: &Path) -> Result<Vec<u8>, Failure> {
    let read = match file.as_os_str() == "-" {
        true => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        }
        false => std::fs::read(file),
    };
    read.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}

struct Work {
    redriver: Redriver,
    letters: Vec<Redriven>,
}

impl Work {
    /// One after the other, in the order of the records. After a failure the rest of its key is held.
    async fn run(&mut self, places: &[Place], wish: &Wish, rate: Option<Duration>, stop: &CancellationToken) -> Done {
        let meter = Arc::new(Meter::default());
        meter.total.store(places.len() as u64, Ordering::Relaxed);
        let mut progress = Progress::new(Arc::clone(&meter), "tried", false);
        let mut failed: HashSet<(&str, i64, &[u8])> = HashSet::new();
        let mut due = Instant::now();
        let mut ended = Ok(());
        for place in places {
            // What has no key has no order to keep.
            let key = place.key.as_deref().map(|key| (place.topic.as_str(), place.partition, key));
            if key.is_some_and(|key| failed.contains(&key)) {
                self.letters.push(held(place));
                continue;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(due.into()) => {}
            }
            due = Instant::now() + rate.unwrap_or_default();
            match self.redriver.redrive(place, wish).await {
                Ok(done) => {
                    if done.fate == Fate::Failed {
                        failed.extend(key);
                    }
                    self.letters.push(done);
                }
                Err(error) => {
                    let at = format!("{}/{}/{}", place.topic, place.partition, place.offset);
                    ended = Err(named(error.into(), &format!("dead letter {} ({at})", place.id)));
                    break;
                }
            }
            meter.done.fetch_add(1, Ordering::Relaxed);
            progress.add(1, "");
        }
        progress.finish();
        ended
    }

    /// A message that was set aside has no dead letter: it is tried now.
    async fn waiting(&mut self, config: &Config, store: &Store, id: &str, wish: &Wish) -> Done {
        for entry in waiting(config, store, id).await? {
            self.letters.extend(self.redriver.try_now(&entry, wish).await?);
        }
        Ok(())
    }
}

async fn waiting(config: &Config, store: &Store, id: &str) -> Result<Vec<InboxEntry>, Failure> {
    let mut entries = lookup(config, store.clone()).entries(id, None).await?;
    entries.retain(|entry| entry.status == Status::Waiting);
    Ok(entries)
}

fn named(failure: Failure, what: &str) -> Failure {
    let text = |text: String| format!("{what} and what stands behind it were not tried: {text}");
    match failure {
        Failure::Failed(why) => Failure::Failed(text(why)),
        Failure::Unreachable(why) => Failure::Unreachable(text(why)),
        Failure::Usage(why) => Failure::Usage(text(why)),
        Failure::Problems => Failure::Problems,
    }
}

pub async fn discard(args: &DiscardArgs) -> Done {
    let config = load_one(&args.chosen.one)?;
    if args.why.trim().is_empty() {
        return Err(Failure::Usage("`--why` says nothing".to_owned()));
    }
    let store = open_store(&config)?;
    let pipeline = &config.pipeline.name;
    let (mut places, absent) = args.chosen.places(&store, pipeline).await?;
    if let (true, false, Some(id)) = (places.is_empty(), args.chosen.dry_run, &args.chosen.filter.message_id) {
        give_up(&config, &store, id).await?;
        places = args.chosen.places(&store, pipeline).await?.0;
    }
    let by = args.chosen.by();
    let mut gone: Vec<Discarded> = absent.into_iter().map(|id| Discarded::new(id, None, Fate::Missing)).collect();
    for place in &places {
        let open = match args.chosen.dry_run {
            true => store.dead_letter(pipeline, place.id).await?.is_some_and(|found| found.letter.status == "open"),
            false => store.discard(pipeline, place.id, &by, &args.why).await?,
        };
        let message_id = place.message_id.clone();
        gone.push(match open {
            true => {
                Discarded { discarded: true, fate: "discarded", ..Discarded::new(place.id, message_id, Fate::Closed) }
            }
            false => Discarded::new(place.id, message_id, Fate::Closed),
        });
    }
    store.close().await;
    let count = gone.iter().filter(|letter| letter.discarded).count();
    match args.chosen.one.output {
        Output::Json => output::json(&serde_json::json!({
            "dryRun": args.chosen.dry_run, "discarded": count, "letters": gone,
        })),
        Output::Text => {
            for letter in gone.iter().filter(|letter| !letter.discarded) {
                output::print(&format!("{} is {}", letter.id, letter.fate));
            }
            let dry = if args.chosen.dry_run { "; nothing was changed (--dry-run)" } else { "" };
            output::print(&format!("{count} of {} dead letters discarded{dry}", gone.len()));
        }
    }
    if count == gone.len() { Ok(()) } else { Err(Failure::Problems) }
}

/// A message that waits has no dead letter yet: it is parked first.
async fn give_up(config: &Config, store: &Store, id: &str) -> Done {
    let replayer = Replayer::new(config, CancellationToken::new())?;
    let redriver = replayer.redriver();
    for entry in waiting(config, store, id).await? {
        redriver.park(&entry).await?;
    }
    replayer.close().await;
    Ok(())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Discarded {
    id: i64,
    message_id: Option<String>,
    fate: &'static str,
    #[serde(skip)]
    discarded: bool,
}

impl Discarded {
    fn new(id: i64, message_id: Option<String>, fate: Fate) -> Self {
        Self { id, message_id, fate: fate.as_str(), discarded: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_a_second() {
        assert_eq!(rate("50/s"), Ok(Duration::from_millis(20)));
        assert_eq!(rate("0.5"), Ok(Duration::from_secs(2)));
        for bad in ["", "0", "-1/s", "x/s", "5/m", "inf"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
