//! Messages that wait do not stand in the way of anything.

use countersign::supervisor::Readiness;

use crate::broker::Rec;
use crate::constraints::{TABLES, child, children, routes};
use crate::database::Engine;
use crate::wait::until;
use crate::world::everywhere;

fn retry(delay: &str) -> String {
    format!("[retry]\nattempts = 1000\ndelay = \"{delay}\"\nmax_delay = \"{delay}\"\n{}", routes(""))
}

#[test]
fn a_waiting_message_that_cannot_be_tried_does_not_hold_up_the_others() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        world.send(&[child(5, 70, 10), child(6, 70, 10), child(7, 70, 10)]).await;
        let running = world.start(&retry("100ms")).await;
        running.outcomes(3, "parked=3").await;
        running.stop().await;
        // The first one to be looked at is not to be read any more.
        let (bytes, past) = match world.db.engine {
            Engine::Postgres => ("'\\x00ff'", "now() - interval '1 day'"),
            Engine::MariaDb => ("X'00ff'", "UTC_TIMESTAMP(6) - INTERVAL 1 DAY"),
            Engine::Sqlite => ("X'00ff'", "'2020-01-01T00:00:00.000Z'"),
        };
        let sql = format!(
            "UPDATE countersign_inbox SET waiting_record = {bytes}, next_try_at = {past} WHERE message_id = 'child-5-70-10';
             INSERT INTO parents VALUES (70);"
        );
        world.db.run(&sql).await;
        let running = world.start(&retry("100ms")).await;
        until("the others", || async { (world.db.count("FROM children").await == 2).then_some(()) }).await;
        assert_eq!(children(&world).await, ["6", "7"]);
        assert!(world.inbox().await.iter().any(|row| row.starts_with("child-5-70-10|WAITING")));
        running.stop().await;
    });
}

#[test]
fn any_number_of_waiting_messages_does_not_pause_their_lane() {
    everywhere(|world| async move {
        world.db.run(TABLES).await;
        let orphans = (100..230).map(|id| child(id, 70, 10));
        world.send(&orphans.chain([child(1, 1, 10)]).collect::<Vec<Rec>>()).await;
        let running = world.start(&retry("1h")).await;
        running.outcomes(131, "applied=1 parked=130").await;
        running.ready().await;
        assert_eq!(world.lane(0).await.unwrap().paused, None);
        assert_eq!(running.reasons().0, Readiness::Ready);
        assert_eq!(children(&world).await, ["1"]);
        running.stop().await;
    });
}
