//! What the machine does to a daemon: a full disk under its log, a clock that jumps.

use std::fs::{File, OpenOptions};

use crate::business::Business;
use crate::daemon::Daemon;
use crate::database::Engine;
use crate::points::end;
use crate::world::on;

#[test]
fn a_full_disk_under_the_log_stops_neither_the_work_nor_the_end() {
    on(&[Engine::Postgres], |world| async move {
        let mut business = Business::begin(&world).await;
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let daemon = Daemon::start_with(&world, &Business::config("memory"), |command| {
            command.env("RUST_LOG", "debug").stderr(full);
        });
        business.send(&world, 200).await;
        business.proves_right(&world).await;
        end(daemon);
    });
}

/// Windows and leases go by the database's clock, waits by one that only runs forward.
#[test]
fn a_clock_that_jumps_changes_nothing() {
    on(&[Engine::Postgres, Engine::MariaDb], |world| async move {
        let mut business = Business::begin(&world).await;
        let clock = world.db.dir.path().join("clock");
        let set = |offset: &str| {
            // Renamed into place: it is read at every look at the clock.
            let new = clock.with_extension("new");
            std::io::Write::write_all(&mut File::create(&new).unwrap(), offset.as_bytes()).unwrap();
            std::fs::rename(&new, &clock).unwrap();
        };
        set("-3d");
        let library = std::env::var("COUNTERSIGN_FAKETIME")
            .unwrap_or_else(|_| "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1".to_owned());
        assert!(std::path::Path::new(&library).exists(), "the package faketime is needed: {library}");
        let daemon = Daemon::start_with(&world, &Business::config("memory"), |command| {
            command
                .env("LD_PRELOAD", &library)
                .env("FAKETIME_TIMESTAMP_FILE", &clock)
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("DONT_FAKE_MONOTONIC", "1");
        });
        for offset in ["-3d", "+400d", "-30d", "+0d"] {
            set(offset);
            business.send(&world, 60).await;
            business.finished(&world).await;
            business.holds(&world).await;
        }
        business.proves_right(&world).await;
        end(daemon);
    });
}
