//! Servers that a bench starts: this program's own, and llama.cpp's through its Python package.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::load::Target;

/// Time to load weights.
const LOAD_MAX: Duration = Duration::from_secs(60);
const LLAMA_SERVER: &str = include_str!("llama_server.py");

/// What both servers are told, so that they have the same to work with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) threads: u32,
    pub(super) context_tokens: u32,
    pub(super) slots: u32,
}

/// A running server; ends when dropped.
pub(super) struct Server {
    pub(super) target: Target,
    child: Child,
}

impl Server {
    /// `pipeline serve`.
    pub(super) async fn own(sizes: Sizes, more: &[&str]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let port = free_port()?;
        let mut command = Command::new(program);
        let Sizes { threads, context_tokens, slots } = sizes;
        command.arg("serve").args(["--listen", &format!("127.0.0.1:{port}")]);
        for (name, value) in
            [("--threads", threads), ("--context-tokens", context_tokens), ("--slots", slots)]
        {
            command.args([name, &value.to_string()]);
        }
        command.args(more);
        Server::start(command, port).await
    }

    /// llama.cpp's own server; none when `python` has no package `xllamacpp`.
    pub(super) async fn llama(
        python: &str,
        model: &std::path::Path,
        sizes: Sizes,
    ) -> Result<Option<Self>, String> {
        let has_package = Command::new(python)
            .args(["-c", "import xllamacpp"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !has_package.await.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let port = free_port()?;
        let mut command = Command::new(python);
        let Sizes { threads, context_tokens, slots } = sizes;
        command.args(["-c", LLAMA_SERVER]).arg(model);
        command.args([u32::from(port), threads, context_tokens, slots].map(|n| n.to_string()));
        Server::start(command, port).await.map(Some)
    }

    async fn start(mut command: Command, port: u16) -> Result<Self, String> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| format!("a server could not be started: {e}"))?;
        let target = Target::open(&format!("http://127.0.0.1:{port}"), LOAD_MAX).await?;
        Ok(Server { target, child })
    }

    /// Process id, for its processor time.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for its end, so that it computes no more beside the next one.
    pub(super) async fn end(mut self) {
        // Gone already: nothing to wait for.
        let _ = self.child.kill().await;
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    listener.local_addr().map(|a| a.port()).map_err(|e| e.to_string())
}
