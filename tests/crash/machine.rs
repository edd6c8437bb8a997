//! What the machine does to a daemon: a full disk under its log, a clock that jumps.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;

use crate::business::Business;
use crate::daemon::Daemon;
use crate::database::Engine;
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
        daemon.end();
    });
}

/// Windows and leases go by the database's clock, waits by one that only runs forward.
#[test]
fn a_clock_that_jumps_changes_nothing() {
    on(&Engine::ALL, |world| async move {
        let mut business = Business::begin(&world).await;
        let dir = world.db.dir.path();
        let (source, library) =
            (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash/clock.c"), dir.join("clock.so"));
        let compiled = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status().unwrap();
        assert!(compiled.success());
        let clock = dir.join("clock");
        let jump = |days: i64| {
            // Renamed into place: it is read at every look at the clock.
            let new = dir.join("clock.new");
            std::fs::write(&new, (days * 86_400).to_string()).unwrap();
            std::fs::rename(&new, &clock).unwrap();
        };
        jump(-3);
        let daemon = Daemon::start_with(&world, &Business::config("memory"), |command| {
            command.env("LD_PRELOAD", &library).env("CLOCK_FILE", &clock);
        });
        for days in [-3, 400, -30, 0] {
            jump(days);
            business.send(&world, 60).await;
            business.finished(&world).await;
            business.holds(&world).await;
        }
        let log = daemon.last_words();
        let years: BTreeSet<&str> = log.lines().filter_map(|line| line.split('-').next()).collect();
        assert!(years.len() > 1, "the clock did not jump: {log}");
        business.proves_right(&world).await;
        daemon.end();
    });
}
