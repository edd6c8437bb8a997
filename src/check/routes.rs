//! Routes: what their settings give up, as far as it can be known without records.

use super::Check;
use crate::config::{Config, RouteConfig};
use crate::effect;
use crate::effect::spec::EffectSpec;
use crate::route::IdRule;

/// How each route's effect runs, where its ids come from, and what it goes without.
///
/// Shared scopes and snapshot reads that are skipped are found by the configuration itself, and told with its
/// warnings.
pub(super) fn checks(config: &Config) -> Vec<Check> {
    let mut checks = Vec::new();
    for route in &config.routes {
        let effect = effect::build(&route.effect, &config.pipeline.name, config.store.dialect);
        checks.push(Check::ok(format!("route {} effect", route.route.name), effect.describe()));
        checks.extend(source_ids(route));
        checks.extend(without_inbox(route));
    }
    checks
}

/// Which tables the source has shows in their records alone; what to know about them is said.
fn source_ids(route: &RouteConfig) -> Option<Check> {
    if !route.route.message_id.contains(&IdRule::Source) {
        return None;
    }
    let detail = "ids come from the coordinates of the mysql, mariadb, postgresql, sqlserver, db2, oracle (LogMiner, \
                  XStream) and mongodb connectors; records of others, and of MongoDB's transactions, are parked \
                  (no_safe_id); a table without a primary key is told by the digest of its row, and then equal rows of \
                  one transaction in Postgres cannot be told apart and count as one";
    Some(Check::ok(format!("route {} ids", route.route.name), detail))
}

fn without_inbox(route: &RouteConfig) -> Option<Check> {
    let EffectSpec::Table(table) = &route.effect else { return None };
    (!table.inbox).then(|| {
        Check::warn(
            format!("route {} inbox", route.route.name),
            "inbox = false: no receipts, no dedup row, no conflict is seen; the guard alone keeps older changes from \
             overwriting newer rows",
            "leave `inbox` out unless nobody asks for receipts of this route",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Outcome;
    use crate::config::Host;

    #[test]
    fn what_a_route_gives_up_is_named() {
        let text = "[pipeline]\nname = \"p\"\n[kafka]\nbrokers = \"b:9092\"\ntopics = [\"shop\"]\n[store]\n\
                    url = \"sqlite:x.db\"\n[[route]]\nname = \"mirror\"\nmatch = { topic = \"shop\" }\n\
                    message_id = \"source\"\n[route.effect]\nkind = \"table\"\ntable = \"t\"\nkey = [\"id\"]\n\
                    guard = \"source\"\ninbox = false\n";
        let host = Host { env: &|_| None, kafka_option: &|_, _| Ok(()) };
        let checks = checks(&Config::parse(text, "p.toml", host).unwrap());
        let names: Vec<_> = checks.iter().map(|check| (check.name.as_str(), check.outcome)).collect();
        assert_eq!(
            names,
            [
                ("route mirror effect", Outcome::Ok),
                ("route mirror ids", Outcome::Ok),
                ("route mirror inbox", Outcome::Warn)
            ]
        );
    }
}
