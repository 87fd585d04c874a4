//! What the whole-system tests stand on: the built binary in a process of its own, real clips, a subscriber, an
//! RTSP server. Knows the program only from outside: command line, WebSocket, exit status.
//!
//! Everything here fails by panicking with what was found: its callers are tests.
#![expect(clippy::expect_used, clippy::panic, reason = "a helper that fails is a failed test")]

mod binary;
pub mod clips;
pub mod configs;
mod http;
mod machine;
pub mod results;
mod rtsp;
mod run;
mod subscriber;
pub mod words;

pub use binary::{binary, workspace};
pub use http::{Answer, Http};
pub use machine::{Machine, free_port};
pub use rtsp::RtspServer;
pub use run::{Finished, Run};
pub use subscriber::Subscriber;
