//! `check`: what it finds, how it ends, and that it leaves nothing behind and tells no secret.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::database::Engine;
use crate::registry_server::{Kind, RegistryServer, Trouble};
use crate::world::{World, everywhere, on};

const TABLES: &str = "CREATE TABLE ledger (order_id VARCHAR(40) NOT NULL, amount DECIMAL(12,2) NOT NULL); \
                      CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance DECIMAL(12,2) NOT NULL); \
                      CREATE TABLE orders_copy (id BIGINT PRIMARY KEY, state VARCHAR(20))";

const ROUTES: &str = r#"
[[route]]
name = "charge"
match = { topic = "TOPIC", header.eventType = "PaymentRequested" }
message_id = "header:id"
[route.effect]
kind = "sql"
steps = [
  { sql = "INSERT INTO ledger (order_id, amount) VALUES (:orderId, :amount)" },
  { sql = "UPDATE accounts SET balance = balance - :amount WHERE id = :account AND balance >= :amount", expect_rows = 1 },
]
[[route]]
name = "mirror"
match = { topic = "TOPIC" }
message_id = "source"
[route.effect]
kind = "table"
table = "orders_copy"
key = ["id"]
guard = "source"
"#;

/// What a run of the command came to.
struct Checked {
    exit: i32,
    /// All that was printed, on both channels.
    printed: String,
    document: Option<Value>,
}

/// The file with nothing but what this suite is about. `rest` has routes and other sections.
fn config(world: &World, rest: &str) -> String {
    let World { name, topic, receipts, .. } = world;
    format!(
        "[pipeline]\nname = \"{name}\"\n[kafka]\nbrokers = \"{}\"\ntopics = [\"{topic}\"]\n\
         [store]\nurl = \"{}\"\n[receipts]\ntopic = \"{receipts}\"\n{}",
        world.broker.address(),
        world.db.url,
        rest.replace("TOPIC", topic)
    )
}

fn check(world: &World, config: &str, json: bool) -> Checked {
    let path = world.db.dir.path().join("check.toml");
    std::fs::write(&path, config).unwrap();
    run(&path, if json { &["--output", "json"] } else { &[] })
}

fn run(path: &Path, arguments: &[&str]) -> Checked {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    let done = command.arg("check").arg("-c").arg(path).args(arguments).output().unwrap();
    let stdout = String::from_utf8(done.stdout).unwrap();
    let document = serde_json::from_str(&stdout).ok();
    let printed = stdout + &String::from_utf8(done.stderr).unwrap();
    Checked { exit: done.status.code().unwrap(), printed, document }
}

impl Checked {
    /// Status and detail of the check with this name; the worst if there are several.
    fn of(&self, name: &str) -> (String, String) {
        let document = self.document.as_ref().unwrap_or_else(|| panic!("no document: {}", self.printed));
        let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
        let checks = document["checks"].as_array().unwrap().iter().filter(|check| check["name"] == name);
        let found = checks.map(|check| (text(check, "status"), text(check, "detail")));
        let worst = found.max_by_key(|(status, _)| ["ok", "warn", "fail"].iter().position(|s| s == status));
        worst.unwrap_or_else(|| panic!("no check {name}: {}", self.printed))
    }

    #[track_caller]
    fn says(&self, name: &str, status: &str, detail: &str) {
        let (found, text) = self.of(name);
        assert!(found == status && text.contains(detail), "{name} is {found}, {text}");
    }
}

fn redis() -> String {
    let address = std::env::var("COUNTERSIGN_REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:16379".to_owned());
    format!("[gate]\nurl = \"{address}\"\n")
}

#[test]
fn all_is_well_and_nothing_is_left_behind() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let config = config(&world, &(redis() + ROUTES));
        let checked = check(&world, &config, true);
        assert_eq!(checked.exit, 0, "{}", checked.printed);
        for name in [
            "configuration",
            "kafka",
            "kafka topics",
            "kafka receipts",
            "store",
            "store tables",
            "store keys",
            "store privileges",
            "store isolation",
            "gate",
            "gate commands",
            "route charge step 1",
            "route charge step 2",
            "route mirror table",
        ] {
            checked.says(name, "ok", "");
        }
        for table in
            ["inbox", "outbox", "dead_letters", "lanes", "row_versions", "reconcile_batches", "reconcile_diffs"]
        {
            assert_eq!(world.db.count(&format!("FROM countersign_{table}")).await, 0, "{table}");
        }
        let text = check(&world, &config, false);
        let last = text.printed.lines().last().unwrap();
        assert!(text.exit == 0 && last.ends_with(" 0 fail"), "{}", text.printed);
        assert!(text.printed.lines().any(|line| line.starts_with("ok    store tables: version ")), "{}", text.printed);
    });
}

#[test]
fn missing_tables_are_named_with_the_command_that_makes_them() {
    everywhere(|world| async move {
        world.db.run(&format!("{TABLES}; DROP TABLE countersign_outbox")).await;
        let checked = check(&world, &config(&world, ROUTES), true);
        assert_eq!(checked.exit, 1, "{}", checked.printed);
        checked.says("store tables", "fail", "there is no countersign_outbox");
        assert!(checked.printed.contains("countersign migrate"), "{}", checked.printed);
        checked.says("route charge step 1", "ok", "");
    });
}

#[test]
fn a_key_that_joins_different_ids_is_refused() {
    on(&[Engine::MariaDb], |world| async move {
        let wrong = "ALTER TABLE countersign_inbox MODIFY inbox_key VARCHAR(255) COLLATE utf8mb4_general_ci NOT NULL";
        world.db.run(&format!("{TABLES}; {wrong}")).await;
        let checked = check(&world, &config(&world, ROUTES), true);
        assert_eq!(checked.exit, 1, "{}", checked.printed);
        checked.says("store keys", "fail", "countersign_inbox.inbox_key is varchar with collation utf8mb4_general_ci");
    });
    on(&[Engine::Postgres], |world| async move {
        world.db.run("ALTER TABLE countersign_lanes DROP CONSTRAINT countersign_lanes_pkey").await;
        let checked = check(&world, &config(&world, ROUTES), true);
        checked.says("store keys", "fail", "countersign_lanes has no primary key (pipeline, topic, kafka_partition)");
    });
}

#[test]
fn a_target_whose_columns_must_be_there_is_in_order() {
    everywhere(|world| async move {
        world.db.run(&TABLES.replace("state VARCHAR(20)", "state VARCHAR(20) NOT NULL, n INT NOT NULL")).await;
        check(&world, &config(&world, ROUTES), true).says("route mirror table", "ok", "orders_copy");
    });
}

#[test]
fn a_target_without_the_unique_key_is_refused() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.db.run("DROP TABLE orders_copy; CREATE TABLE orders_copy (id BIGINT, state VARCHAR(20))").await;
        let checked = check(&world, &config(&world, ROUTES), true);
        assert_eq!(checked.exit, 1, "{}", checked.printed);
        checked.says("route mirror table", "fail", "orders_copy has no unique key (id)");
        world.db.run("CREATE UNIQUE INDEX orders_copy_id ON orders_copy (id)").await;
        check(&world, &config(&world, ROUTES), true).says("route mirror table", "ok", "");
        world.db.run("DROP TABLE orders_copy").await;
        let gone = check(&world, &config(&world, ROUTES), true);
        gone.says("route mirror table", "fail", "there is no table orders_copy");
    });
}

#[test]
fn a_step_that_the_database_does_not_take_is_named_with_its_code() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let config = config(&world, ROUTES).replace("SET balance = balance", "SET balance = balanse");
        let checked = check(&world, &config, true);
        assert_eq!(checked.exit, 1, "{}", checked.printed);
        let code = match world.db.engine {
            Engine::Postgres => "42703",
            Engine::MariaDb => "1054",
            Engine::Sqlite => "code 1)",
        };
        checked.says("route charge step 1", "ok", "");
        checked.says("route charge step 2", "fail", code);
    });
}

#[test]
fn a_database_that_can_only_be_read_is_told_before_a_run() {
    on(&[Engine::Postgres], |world| async move {
        world.db.run(TABLES).await;
        world.db.run(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", world.name)).await;
        let checked = check(&world, &config(&world, ROUTES), true);
        assert_eq!(checked.exit, 1, "{}", checked.printed);
        checked.says("store privileges", "fail", "25006");
        assert!(checked.printed.contains("name the primary"), "{}", checked.printed);
    });
}

#[test]
fn topics_that_are_not_there_are_found() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let topics = format!("topics = [\"{}\"]", world.topic);
        let config = config(&world, ROUTES);
        let missing = config.replace(&topics, &format!("topics = [\"{}\", \"nowhere\", \"^no-[a-z]+$\"]", world.topic));
        let checked = check(&world, &missing, true);
        assert_eq!(checked.exit, 1, "{}", checked.printed);
        checked.says("kafka topics", "fail", "there is no topic nowhere");
        assert!(checked.printed.contains("no topic matches ^no-[a-z]+$"), "{}", checked.printed);
        let unpushed = config.replace(&world.receipts, "not.made");
        check(&world, &unpushed, true).says("kafka receipts", "fail", "not.made does not exist");
    });
}

#[test]
fn a_broker_that_is_away_ends_with_3_and_the_rest_is_checked_all_the_same() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let config = config(&world, ROUTES).replace(&world.broker.address(), "127.0.0.1:1");
        let began = Instant::now();
        let checked = check(&world, &config, true);
        assert_eq!(checked.exit, 3, "{}", checked.printed);
        assert!(began.elapsed() < Duration::from_secs(20));
        checked.says("kafka", "fail", "127.0.0.1:1");
        checked.says("store privileges", "ok", "");
        checked.says("route mirror table", "ok", "");
    });
}

/// Each dependency refuses or is away, and each has a secret that its messages could quote.
#[test]
fn no_secret_is_printed_and_wrong_settings_are_said_in_time() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        let options = "[kafka.options]\n\"security.protocol\" = \"SASL_PLAINTEXT\"\n\"sasl.mechanism\" = \"PLAIN\"\n\
                       \"sasl.username\" = \"app\"\n\"sasl.password\" = \"hunter2\"\n\
                       [gate]\nurl = \"redis://app:hunter2@127.0.0.1:1/4\"\n";
        let mut address = url::Url::parse(&world.db.url).unwrap();
        address.set_password(Some("hunter2")).unwrap();
        let config = config(&world, &format!("{options}{ROUTES}")).replace(&world.db.url, address.as_str());
        for json in [true, false] {
            let began = Instant::now();
            let checked = check(&world, &config, json);
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
            assert_eq!(checked.exit, 3, "{}", checked.printed);
            assert!(!checked.printed.contains("hunter2"), "{}", checked.printed);
            if json {
                checked.says("kafka", "fail", "");
                checked.says("store", "fail", if world.db.engine == Engine::Postgres { "28P01" } else { "1045" });
                checked.says("gate", "fail", "redis://app:***@127.0.0.1:1/4");
            }
        }
    });
}

#[test]
fn looking_at_a_file_does_not_make_it() {
    on(&[Engine::Sqlite], |world| async move {
        let path = world.db.dir.path().join("new.db");
        let config = config(&world, ROUTES).replace(&world.db.url, &format!("sqlite:{}", path.display()));
        let checked = check(&world, &config, true);
        assert_eq!(checked.exit, 1, "{}", checked.printed);
        checked.says("store", "fail", "there is no file");
        assert!(!path.exists());
    });
}

/// One line about the registry: what answers there, or what is wrong and what to do.
#[test]
fn the_registry_is_asked_as_a_record_would_ask_it() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        let with = |url: &str, rest: &str| {
            check(&world, &config(&world, &format!("[registry]\nurl = \"{url}\"\n{rest}\n{ROUTES}")), true)
        };
        let mut confluent = RegistryServer::start(Kind::Confluent).await;
        let apicurio = RegistryServer::start(Kind::Apicurio2).await;
        let fine = with(&confluent.url, "");
        assert_eq!(fine.exit, 0, "{}", fine.printed);
        fine.says("registry", "ok", "Confluent's API answers at http://127.0.0.1");
        with(&apicurio.url, "flavour = \"apicurio\"").says("registry", "ok", "(apicurio 2.6.13.Final)");
        // Each is asked as the other; both are named.
        let swapped = with(&apicurio.url, "");
        assert_eq!(swapped.exit, 1, "{}", swapped.printed);
        swapped.says("registry", "fail", "does not serve as a registry");
        assert!(
            swapped.printed.contains("flavour = \\\"apicurio\\\"`: Apicurio's API version 2"),
            "{}",
            swapped.printed
        );
        let swapped = with(&confluent.url, "flavour = \"apicurio\"");
        assert!(swapped.printed.contains("flavour = \\\"confluent\\\"`: Confluent's API"), "{}", swapped.printed);
        confluent.require("Basic dTpw");
        let address = |user: &str| confluent.url.replace("http://", &format!("http://{user}@"));
        with(&address("u:p"), "").says("registry", "ok", "user and password accepted");
        let (url, wrong) = (confluent.url.clone(), with(&address("u:hunter2"), ""));
        assert_eq!(wrong.exit, 1, "{}", wrong.printed);
        wrong.says("registry", "fail", "refuses our credentials (status 401)");
        assert!(!wrong.printed.contains("hunter2"), "{}", wrong.printed);
        confluent.stop().await;
        let away = with(&url, "");
        assert_eq!(away.exit, 3, "{}", away.printed);
        away.says("registry", "fail", "does not answer");
    });
}

/// A proxy's log-in page, a welcome page, an API of something else: all of them answer with 200.
#[test]
fn whatever_else_answers_with_200_is_no_registry() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        for (kind, rest) in [
            (Kind::Confluent, ""),
            (Kind::Apicurio2, "flavour = \"apicurio\""),
            (Kind::Apicurio2, "/apis/registry/v2"),
            (Kind::Apicurio3, "/apis/registry/v3"),
        ] {
            for (content, body) in [
                ("text/html", "<!DOCTYPE html><html>welcome</html>"),
                ("application/json", "{\"status\":\"ok\"}"),
                ("text/plain", "ok"),
            ] {
                let server = RegistryServer::start(kind).await;
                server.script(vec![Trouble::Says(200, content, body.as_bytes().to_vec()); 40]);
                let (path, rest) = if rest.starts_with('/') { (rest, "flavour = \"apicurio\"") } else { ("", rest) };
                let registry = format!("[registry]\nurl = \"{}{path}\"\n{rest}\n{ROUTES}", server.url);
                let checked = check(&world, &config(&world, &registry), true);
                assert_eq!(checked.exit, 1, "{kind:?} {path} {content}: {}", checked.printed);
                checked.says("registry", "fail", "does not serve as a registry");
                assert!(checked.printed.contains("`[registry]"), "{}", checked.printed);
            }
        }
    });
}
