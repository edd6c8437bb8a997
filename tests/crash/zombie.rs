//! A daemon that stands still beyond its session and wakes up when another one has long done its work.

use crate::business::Business;
use crate::daemon::Daemon;
use crate::database::Engine;
use crate::points::{armed, finish};
use crate::wait::until;
use crate::world::on;

/// SQLite has one daemon a file: there is no other one.
const SHARED: [Engine; 2] = [Engine::Postgres, Engine::MariaDb];

/// Where it falls asleep: with nothing, with rows that are not committed and their locks, with a commit that nobody
/// was told of, with offsets and receipts on their way.
const ASLEEP: [&str; 5] = ["after-claim", "after-effect", "after-commit", "after-store-offset", "after-produce"];

pub async fn asleep(daemon: &Daemon) {
    let status = format!("/proc/{}/stat", daemon.child.id());
    until("a daemon that is stopped", || async {
        let stat = std::fs::read_to_string(&status).unwrap();
        // The state stands behind the name in parentheses.
        stat.rsplit(") ").next().unwrap().starts_with('T').then_some(())
    })
    .await;
}

#[test]
fn a_zombie_that_wakes_up_changes_nothing() {
    on(&SHARED, |world| async move {
        let mut business = Business::begin(&world).await;
        for point in ASLEEP {
            let zombie = armed(&world, "memory", &format!("{point}=1*off->1*return(stop)"));
            business.send(&world, 60).await;
            asleep(&zombie).await;
            let other = armed(&world, "memory", "");
            // Its locks go with the patience of the database, its partitions with its session.
            business.finished(&world).await;
            business.holds(&world).await;
            zombie.signal("CONT");
            business.send(&world, 60).await;
            business.finished(&world).await;
            business.holds(&world).await;
            zombie.end();
            other.end();
        }
        finish(&world, "memory", &business).await;
    });
}

/// It is woken up while the other one is at work, so that both have something to write.
#[test]
fn a_zombie_among_others_at_work_changes_nothing() {
    on(&SHARED, |world| async move {
        let mut business = Business::begin(&world).await;
        let zombie = armed(&world, "off", "after-effect=2*off->1*return(stop)");
        business.send(&world, 300).await;
        asleep(&zombie).await;
        let others = [armed(&world, "off", ""), armed(&world, "off", "")];
        for _ in 0..6 {
            business.send(&world, 100).await;
            zombie.signal("CONT");
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
            zombie.signal("STOP");
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        }
        zombie.signal("CONT");
        business.proves_right(&world).await;
        zombie.end();
        others.into_iter().for_each(Daemon::end);
    });
}
