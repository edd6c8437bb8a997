//! Waiting for something to become true, with a deadline.

use std::time::{Duration, Instant};

/// Far beyond what any step takes, so that only a fault reaches it.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// How often it is looked: seldom when it takes long, since whoever looks takes time from those that are looked at.
const LOOK: Duration = Duration::from_millis(20);
const SELDOM: Duration = Duration::from_millis(200);

/// Asks until there is an answer; panics with what was waited for.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    until_within(PATIENCE, what, &mut ask).await
}

pub async fn until_within<T, F: Future<Output = Option<T>>>(
    patience: Duration,
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + patience;
    let mut pause = LOOK;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {patience:?} for: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 5 / 4).min(SELDOM);
    }
}

/// Looks for a while whether something stays as it is: for what must not happen there is no event to wait for.
pub async fn stays<F: Future<Output = bool>>(time: Duration, what: &str, mut holds: impl FnMut() -> F) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        assert!(holds().await, "does not stay so: {what}");
        tokio::time::sleep(LOOK).await;
    }
}
