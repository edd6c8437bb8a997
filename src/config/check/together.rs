//! Several files in one process held against each other.

use crate::config::Config;
use crate::config::fault::{Fault, Faults};

/// Refuses what would mix pipelines up, and spreads the sections that hold for the process.
pub(in crate::config) fn together(configs: &mut [Config], faults: &mut Faults) {
    for (n, config) in configs.iter().enumerate() {
        for earlier in &configs[..n] {
            if earlier.pipeline.name == config.pipeline.name {
                let message = format!(
                    "`{}` is the pipeline of {} too: they would share one inbox, choose another name",
                    config.pipeline.name, earlier.origin
                );
                faults.push(fault(config, "pipeline.name", message));
            } else if earlier.kafka.group == config.kafka.group && earlier.kafka.brokers == config.kafka.brokers {
                let message = format!(
                    "is the group of pipeline `{}` too: each would get a part of the records, choose another",
                    earlier.pipeline.name
                );
                faults.push(fault(config, "kafka.group", message));
            }
        }
    }
    spread(configs, faults);
}

/// `[http]` and `[log]` hold for the process: one file may say them for all, but two may not differ.
fn spread(configs: &mut [Config], faults: &mut Faults) {
    let http = configs.iter().find(|config| config.said.http).map(|config| config.http.clone());
    let log = configs.iter().find(|config| config.said.log).map(|config| config.log.clone());
    for config in configs {
        if let Some(http) = &http {
            if config.said.http && config.http != *http {
                faults.push(fault(config, "http", "differs from that of another file: one process has one HTTP side"));
            }
            config.http = http.clone();
        }
        if let Some(log) = &log {
            if config.said.log && config.log != *log {
                faults.push(fault(config, "log", "differs from that of another file: one process has one log"));
            }
            config.log = log.clone();
        }
    }
}

fn fault(config: &Config, path: &str, message: impl Into<String>) -> Fault {
    Fault { file: config.origin.clone(), line: None, path: path.to_owned(), message: message.into() }
}
