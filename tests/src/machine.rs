//! One whole-system test at a time, also when the test runner starts many.

use std::fs::File;
use std::net::TcpListener;

/// Held by the test that has the machine to itself.
pub struct Machine {
    _lock: File,
}

impl Machine {
    /// Waits until no other test holds it.
    pub fn take() -> Machine {
        let path = std::env::temp_dir().join("pipeline-system-tests.lock");
        let lock = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        lock.lock().expect("an advisory lock on a local file");
        Machine { _lock: lock }
    }
}

/// A port of 127.0.0.1 that nobody listened on a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has free ports");
    listener.local_addr().expect("it is bound").port()
}
