//! `check`: the pre-launch checklist.

use clap::Args;
use serde::Serialize;

use super::{ConfigArgs, Done, Failure, Output, load, output};
use crate::app::{connection, open_store};
use crate::check::{self, Check, Outcome, Subject, worst};

#[derive(Args)]
pub struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only this pipeline, if there are several.
    #[arg(long)]
    pipeline: Option<String>,
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Serialize)]
struct Document<'a> {
    status: &'static str,
    checks: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    status: &'static str,
    detail: &'a str,
    remedy: Option<&'a str>,
}

pub async fn run(args: &CheckArgs) -> Done {
    let mut configs = load(&args.config)?;
    if let Some(name) = &args.pipeline {
        configs.retain(|config| config.pipeline.name == *name);
    }
    if configs.is_empty() {
        return Err(Failure::Usage("no such pipeline in the configuration".to_owned()));
    }
    let several = configs.len() > 1;
    let mut checks = Vec::new();
    for config in &configs {
        let subject = Subject { config, connection: connection(config), store: open_store(config) };
        for mut found in check::run(subject).await {
            if several {
                found.name = format!("{}: {}", config.pipeline.name, found.name);
            }
            // On a terminal the lines come as they are found: a broker that is away takes its time.
            if args.output == Output::Text {
                output::print(&line(&found));
            }
            checks.push(found);
        }
    }
    let status = worst(&checks);
    match args.output {
        Output::Json => output::json(&document(status, &checks)),
        Output::Text => output::print(&summary(&checks)),
    }
    match status {
        Outcome::Ok | Outcome::Warn => Ok(()),
        Outcome::Fail => Err(Failure::Problems),
        Outcome::Unreachable => Err(Failure::Unreachable("not everything could be reached".to_owned())),
    }
}

fn document(status: Outcome, checks: &[Check]) -> Document<'_> {
    let lines = checks.iter().map(|check| Line {
        name: &check.name,
        status: check.outcome.label(),
        detail: &check.detail,
        remedy: check.remedy.as_deref(),
    });
    Document { status: status.label(), checks: lines.collect() }
}

/// One line whatever a server's text holds.
fn line(check: &Check) -> String {
    let remedy = check.remedy.as_ref().map_or_else(String::new, |remedy| format!(" -> {remedy}"));
    format!("{:<4}  {}: {}{remedy}", check.outcome.label(), check.name, check.detail).replace(char::is_control, " ")
}

fn summary(checks: &[Check]) -> String {
    let count = |label: &str| checks.iter().filter(|check| check.outcome.label() == label).count();
    format!("{} ok, {} warn, {} fail", count("ok"), count("warn"), count("fail"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(outcome: Outcome, remedy: Option<&str>) -> Check {
        Check {
            name: "store".to_owned(),
            outcome,
            detail: "away\nfor\tgood".to_owned(),
            remedy: remedy.map(str::to_owned),
        }
    }

    #[test]
    fn a_check_is_one_line_with_its_remedy() {
        assert_eq!(line(&check(Outcome::Fail, Some("start it"))), "fail  store: away for good -> start it");
        assert_eq!(line(&check(Outcome::Ok, None)), "ok    store: away for good");
    }

    #[test]
    fn the_document_has_the_contract_s_names() {
        let checks = [check(Outcome::Unreachable, Some("start it"))];
        let json = serde_json::to_value(document(worst(&checks), &checks)).unwrap();
        assert_eq!(json["status"], "fail");
        let wanted =
            serde_json::json!({"name": "store", "status": "fail", "detail": "away\nfor\tgood", "remedy": "start it"});
        assert_eq!(json["checks"][0], wanted);
        assert_eq!(summary(&checks), "0 ok, 0 warn, 1 fail");
    }
}
