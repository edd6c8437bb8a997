//! How far long work is: a bar on a terminal, a line now and then elsewhere. Always on standard error.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::input::Meter;

/// In a pipe: not before this, and then as often.
const NOW_AND_THEN: Duration = Duration::from_secs(10);
/// Work that is done sooner shows nothing.
const SHORT: Duration = Duration::from_millis(700);

pub struct Progress {
    meter: Arc<Meter>,
    bar: Option<ProgressBar>,
    began: Instant,
    told: Instant,
    records: u64,
    what: &'static str,
}

impl Progress {
    /// `what` is done with the records: `read`, `written`. `quiet`: the terminal shows the records themselves.
    pub fn new(meter: Arc<Meter>, what: &'static str, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !quiet;
        let now = Instant::now();
        Self { meter, bar: terminal.then(bar), began: now, told: now, records: 0, what }
    }

    /// So many more records; `note` stands behind them.
    pub fn add(&mut self, records: usize, note: &str) {
        self.records += records as u64;
        let (done, total) = (self.meter.done.load(Ordering::Relaxed), self.meter.total.load(Ordering::Relaxed));
        let text = format!("{} records {}{}{note}", self.records, self.what, if note.is_empty() { "" } else { ", " });
        match &self.bar {
            Some(bar) if self.began.elapsed() > SHORT => {
                bar.set_length(total);
                bar.set_position(done.min(total));
                bar.set_message(text);
            }
            Some(_) => {}
            None if self.told.elapsed() > NOW_AND_THEN => {
                self.told = Instant::now();
                let share = (done.min(total) * 100).checked_div(total).map_or_else(String::new, |n| format!(" ({n}%)"));
                eprintln!("countersign: {text}{share}");
            }
            None => {}
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(8));
    match ProgressStyle::with_template("{elapsed_precise} {bar:30} {percent:>3}%  {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
