//! What a process took: processor time and memory, as the kernel counts them.

use std::fs;
use std::time::Instant;

/// What a contender did with one piece of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// Messages a second.
    pub rate: f64,
    /// Processor seconds of the contender alone, for 1,000 messages.
    pub cpu: Option<f64>,
    /// Peak resident memory in MB (10^6 bytes).
    pub peak: Option<f64>,
}

/// From the beginning of the work to its end.
pub struct Meter {
    pids: Vec<u32>,
    began: Instant,
    ticks: f64,
}

impl Meter {
    pub fn start(pids: &[u32]) -> Self {
        Self { pids: pids.to_vec(), began: Instant::now(), ticks: cpu_seconds(pids) }
    }

    pub fn stop(&self, messages: u64) -> Score {
        let messages = messages as f64;
        let cpu = cpu_seconds(&self.pids) - self.ticks;
        let measured = !self.pids.is_empty();
        Score {
            rate: messages / self.began.elapsed().as_secs_f64(),
            cpu: measured.then_some(cpu / messages * 1000.0),
            peak: measured.then(|| self.pids.iter().map(|pid| peak(*pid)).fold(0.0, f64::max)),
        }
    }
}

/// The kernel counts in hundredths of a second on every Linux that Rust runs on.
const TICKS: f64 = 100.0;

fn cpu_seconds(pids: &[u32]) -> f64 {
    let of = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // Behind the name in parentheses, which may hold anything: user and system time are the 12th and the 13th.
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
    };
    pids.iter().map(of).sum::<f64>() / TICKS
}

fn peak(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0 / 1e6
}
