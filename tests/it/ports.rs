//! Ports for servers that are about to be started.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

/// Below the range from which the kernel takes ports for clients, so that nobody has it meanwhile, nor when a server is
/// started again. Never the same one twice.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    loop {
        let port = rand::random_range(20_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && given.insert(port) {
            return port;
        }
    }
}
