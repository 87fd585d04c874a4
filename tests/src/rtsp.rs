//! An RTSP server that this project did not write: GStreamer's, on loopback.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::workspace;

/// A running server; ends with the value, and with this process, because its standard input closes.
pub struct RtspServer {
    child: Child,
    port: u16,
}

impl RtspServer {
    /// Serves an H.264 (and AAC) MP4 file; returns when clients can connect.
    pub fn serve(file: &Path) -> RtspServer {
        // Debian's own Python: GStreamer's bindings belong to it.
        let mut child = Command::new("/usr/bin/python3")
            .arg(workspace().join("tests/tools/rtsp_server.py"))
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Debian's python3 is installed by make setup");
        let stdout = child.stdout.take().expect("it was asked to be piped");
        let mut line = String::new();
        let _ = BufReader::new(stdout).read_line(&mut line);
        let mut server = RtspServer { child, port: 0 };
        server.port = match line.trim().strip_prefix("port ").and_then(|p| p.parse().ok()) {
            Some(port) => port,
            None => panic!(
                "the RTSP server said {line:?} instead of `port N`: are its packages installed (make test)?"
            ),
        };
        server
    }

    /// The file in an endless loop.
    pub fn loop_url(&self) -> String {
        format!("rtsp://127.0.0.1:{}/loop", self.port)
    }

    /// The file once.
    pub fn once_url(&self) -> String {
        format!("rtsp://127.0.0.1:{}/once", self.port)
    }
}

impl Drop for RtspServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
