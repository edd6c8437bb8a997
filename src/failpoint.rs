//! Named points at which the crash suite makes this process die, stop, hang, or lose an answer that was given. They are
//! there with the feature `failpoints` alone: what is released has none.
//!
//! `FAILPOINTS='after-commit=3*off->1*return(die)'` dies at the fourth commit, right after it.

use crate::store::StoreError;

/// Right before or after what the point is named for. An error is an answer that was lost: what was asked for is done.
#[cfg(feature = "failpoints")]
pub async fn at(point: &str) -> Result<(), StoreError> {
    match armed(point).as_deref() {
        None => Ok(()),
        Some("hang") => {
            eprintln!("failpoint: hangs at {point}");
            std::future::pending().await
        }
        Some("lose") => Err(StoreError::Connection(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()))),
        Some(action) => {
            act(point, action);
            Ok(())
        }
    }
}

#[cfg(not(feature = "failpoints"))]
#[inline]
pub async fn at(_: &str) -> Result<(), StoreError> {
    Ok(())
}

/// The same where nothing can be awaited and no answer be lost.
#[cfg(feature = "failpoints")]
pub fn here(point: &str) {
    if let Some(action) = armed(point) {
        act(point, &action);
    }
}

#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn here(_: &str) {}

#[cfg(feature = "failpoints")]
fn armed(point: &str) -> Option<String> {
    fail::fail_point!(point, |action: Option<String>| Some(action.unwrap_or_default()));
    None
}

#[cfg(feature = "failpoints")]
fn act(point: &str, action: &str) {
    match action {
        // As a SIGKILL would: nothing is flushed, unwound or told to anybody.
        "die" => {
            eprintln!("failpoint: dies at {point}");
            std::process::abort()
        }
        // As a machine that is suspended: everything stands until somebody sends SIGCONT.
        "stop" => {
            eprintln!("failpoint: stops at {point}");
            let this = std::process::id().to_string();
            let sent = std::process::Command::new("kill").args(["-STOP", &this]).status();
            assert!(sent.is_ok_and(|status| status.success()), "kill -STOP");
            // Any thread may be the one that takes the signal, and until then this one would go on past the point.
            std::thread::sleep(std::time::Duration::from_secs(2));
        }
        unknown => panic!("no such action at {point}: {unknown}"),
    }
}
