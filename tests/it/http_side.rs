//! The HTTP side of a whole daemon: receipts, health, metrics.

use std::time::Duration;

use countersign::app;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::broker::Rec;
use crate::database::Engine;
use crate::payments::{CHARGE, TABLES, payment};
use crate::ports::free_port;
use crate::wait::until;
use crate::world::{World, everywhere, on, parse};

/// `app::run`, as the command line starts it.
pub struct Daemon {
    address: String,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Daemon {
    pub fn start(world: &World, rest: &str) -> Self {
        let config = parse(&world.config(rest));
        let address = format!("http://{}", config.http.listen);
        let stop = CancellationToken::new();
        let running = app::run(vec![config], stop.clone());
        Self { address, stop, task: tokio::spawn(async move { running.await.unwrap() }) }
    }

    /// Status and body; 0 while nobody listens.
    pub async fn get(&self, path: &str) -> (u16, String) {
        self.get_with(path, None).await
    }

    pub async fn get_with(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let url = format!("{}{path}", self.address);
        let token = token.map(|token| format!("Bearer {token}"));
        let asked = tokio::task::spawn_blocking(move || {
            let agent = ureq::Agent::config_builder().http_status_as_error(false);
            let agent = agent.timeout_global(Some(Duration::from_secs(5))).build().new_agent();
            let mut request = agent.get(&url);
            if let Some(token) = token {
                request = request.header("Authorization", token);
            }
            match request.call() {
                Ok(mut answer) => (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap()),
                Err(_) => (0, String::new()),
            }
        });
        asked.await.unwrap()
    }

    pub async fn json(&self, path: &str) -> Value {
        let (code, body) = self.get(path).await;
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.task).await.expect("the daemon ends").unwrap();
    }
}

#[test]
fn receipts_are_found_by_id_and_by_correlation_and_unknown_ids_are_not() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world
            .send(&[payment("m-1", "bob", 5), payment("a/b c?ü", "poor", 5), payment("m-1", "bob", 6), Rec::bare("x")])
            .await;
        let daemon = Daemon::start(&world, &format!("[http]\nlisten = \"127.0.0.1:{}\"\n{CHARGE}", free_port()));
        until("the receipts", || async { (daemon.get("/v1/receipts/m-1").await.0 == 200).then_some(()) }).await;
        until("all", || async { (world.lane(0).await.is_some_and(|row| row.next_offset == 4)).then_some(()) }).await;
        let receipt = daemon.json("/v1/receipts/m-1").await;
        assert_eq!(
            (&receipt["status"], &receipt["messageId"], &receipt["version"]),
            (&"SUCCESS".into(), &"m-1".into(), &1.into())
        );
        assert_eq!(receipt["position"]["offset"], 0);
        assert_eq!(receipt["pipeline"], world.name.as_str());
        let receipt = daemon.json("/v1/receipts/a%2Fb%20c%3F%C3%BC").await;
        assert_eq!((&receipt["status"], &receipt["code"]), (&"FAILED".into(), &"INSUFFICIENT_FUNDS".into()));
        let (code, body) = daemon.get("/v1/receipts/M-1").await;
        assert_eq!(code, 404, "{body}");
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["error"], "not_found");
        let list = daemon.json("/v1/receipts?correlationId=order-m-1").await;
        assert_eq!(list.as_array().unwrap().len(), 1);
        assert_eq!(daemon.json("/v1/receipts?correlationId=nobody").await.as_array().unwrap().len(), 0);
        assert_eq!(daemon.get("/v1/receipts").await.0, 400);
        let (code, story) = daemon.get("/v1/messages/m-1/timeline").await;
        assert_eq!(code, 200);
        assert!(story.contains("received") && story.contains("parked (conflict)"), "{story}");
        assert_eq!(daemon.get("/v1/messages/nobody/timeline").await.0, 404);
        daemon.stop().await;
    });
}

#[test]
fn with_tokens_only_their_bearers_read_receipts_and_probes_stay_open() {
    on(&[Engine::Sqlite], |world| async move {
        world.db.run(TABLES).await;
        world.send(&[payment("m-1", "bob", 5)]).await;
        let http = format!(
            "[http]\nlisten = \"127.0.0.1:{}\"\nread_token = \"read-0123456789\"\noperate_token = \"operate-0123456789\"\n",
            free_port()
        );
        let daemon = Daemon::start(&world, &[http.as_str(), CHARGE].concat());
        until("the receipt", || async {
            (daemon.get_with("/v1/receipts/m-1", Some("read-0123456789")).await.0 == 200).then_some(())
        })
        .await;
        assert_eq!(daemon.get_with("/v1/receipts/m-1", Some("operate-0123456789")).await.0, 200);
        for wrong in [None, Some(""), Some("read-0123456788"), Some("read-01234567890")] {
            for path in ["/v1/receipts/m-1", "/v1/receipts?correlationId=x", "/v1/messages/m-1/timeline"] {
                assert_eq!(daemon.get_with(path, wrong).await.0, 401, "{path} {wrong:?}");
            }
        }
        for open in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(daemon.get(open).await.0, 200, "{open}");
        }
        daemon.stop().await;
    });
}

#[test]
fn every_metric_has_its_name_and_the_records_add_up() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world
            .send(&[
                payment("m-1", "bob", 5),
                payment("m-1", "bob", 5),
                payment("m-1", "bob", 6),
                payment("m-2", "poor", 6),
                Rec::tombstone("x"),
                Rec::bare("no json"),
            ])
            .await;
        let rest = format!("[http]\nlisten = \"127.0.0.1:{}\"\n{CHARGE}", free_port());
        let daemon = Daemon::start(&world, &rest);
        until("the first batch", || async {
            (world.lane(0).await.is_some_and(|row| row.next_offset == 6)).then_some(())
        })
        .await;
        // From a later batch, for its distance from the first sighting.
        world.send(&[payment("m-1", "bob", 5)]).await;
        let names = [
            "records_total",
            "gate_total",
            "end_to_end_seconds",
            "transaction_seconds",
            "transaction_messages",
            "lag_records",
            "in_flight",
            "parked_total",
            "conflicts_total",
            "receipts_pending",
            "receipt_delivery_seconds",
            "redelivery_distance_seconds",
            "inbox_oldest_seconds",
            "build_info",
        ];
        let text = until("every metric", || async {
            let (_, text) = daemon.get("/metrics").await;
            let all = names.iter().all(|name| text.contains(&format!("# TYPE countersign_{name} ")));
            let seven: f64 = text
                .lines()
                .filter(|line| line.starts_with("countersign_records_total{"))
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum();
            (all && seven >= 7.0).then_some(text)
        })
        .await;
        for (outcome, count) in
            [("applied", 1), ("duplicate", 2), ("conflict", 1), ("rejected", 1), ("skipped", 1), ("parked", 1)]
        {
            let line = format!(
                "countersign_records_total{{outcome=\"{outcome}\",pipeline=\"{}\",topic=\"{}\"}} {count}",
                world.name, world.topic
            );
            assert!(text.lines().any(|have| have == line), "{line}\n{text}");
        }
        assert!(!text.contains("m-1"), "no id is a label");
        until("no lag and nothing pending, at most 5 s old", || async {
            let (_, text) = daemon.get("/metrics").await;
            let zero = |name: &str| text.lines().filter(|line| line.starts_with(name)).all(|line| line.ends_with(" 0"));
            (zero("countersign_lag_records{") && zero("countersign_receipts_pending{")).then_some(())
        })
        .await;
        daemon.stop().await;
    });
}

#[test]
fn readiness_and_liveness_answer_before_kafka_does_and_say_what_is_awaited() {
    on(&[Engine::Postgres], |world| async move {
        let rest = format!("[http]\nlisten = \"127.0.0.1:{}\"\n{CHARGE}", free_port());
        let text = world.config(&rest).replace(&world.broker.address(), "127.0.0.1:1");
        let config = parse(&text);
        let stop = CancellationToken::new();
        let address = format!("http://{}", config.http.listen);
        let running = app::run(vec![config], stop.clone());
        let daemon = Daemon { address, stop, task: tokio::spawn(async move { running.await.unwrap() }) };
        until("liveness", || async { (daemon.get("/livez").await.0 == 200).then_some(()) }).await;
        until("the reason", || async {
            let (code, body) = daemon.get("/readyz").await;
            (code == 503 && body.contains("waiting for Kafka")).then_some(())
        })
        .await;
        daemon.stop().await;
    });
}

#[test]
fn an_idle_pipeline_is_ready_and_shows_its_lanes() {
    on(&[Engine::Postgres], |world| async move {
        world.db.run(TABLES).await;
        let daemon = Daemon::start(&world, &format!("[http]\nlisten = \"127.0.0.1:{}\"\n{CHARGE}", free_port()));
        let report = until("two ready lanes", || async {
            let (code, body) = daemon.get("/readyz").await;
            let report: Value = serde_json::from_str(&body).unwrap_or_default();
            (code == 200 && report["pipelines"][0]["lanes"] == 2).then_some(report)
        })
        .await;
        assert_eq!(report["status"], "ready");
        assert_eq!(report["pipelines"][0]["pipeline"], world.name.as_str());
        assert_eq!(report["pipelines"][0]["reasons"].as_array().unwrap().len(), 0);
        daemon.stop().await;
    });
}
