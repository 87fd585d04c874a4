//! Keeps one engine process running: starts it, moves frames, asks how it is, and starts it again.
//!
//! Its one rule: whatever ends the child, its last words reach the log and the errors of those who waited.

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::backend::BackendError;
use super::process::Shared;
use super::wire::{self, FromChild, Incoming, ToChild};

/// A child that lasted this long was healthy: the next restart is quick again.
const LASTED: Duration = Duration::from_secs(30);
/// Time between two health questions.
const HEALTH_EVERY: Duration = Duration::from_millis(500);
/// Lines of standard error that go into an error.
const LAST_WORDS_LINES: usize = 4;

/// Runs until the task is aborted.
pub(super) async fn supervise(shared: Arc<Shared>) {
    let (first, last) = shared.config.backoff;
    let mut wait = first;
    loop {
        let began = Instant::now();
        let detail = run_once(&shared).await;
        if began.elapsed() >= LASTED {
            wait = first;
        }
        tracing::warn!(detail, retry_ms = wait.as_millis() as u64, "language engine ended");
        shared.closed(&BackendError::Died { detail }, wait);
        sleep(wait).await;
        wait = (wait * 2).min(last);
    }
}

/// One life of the child; gives how it ended.
async fn run_once(shared: &Shared) -> String {
    let config = &shared.config;
    let spawned = Command::new(&config.program)
        .args(&config.program_args)
        .args(config.child.to_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Threads that wait for each other don't burn the cores that others need.
        .env("OMP_WAIT_POLICY", "passive")
        // An interrupt from the terminal is for the parent, which still needs the child while it drains.
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) => return format!("{} could not be started: {e}", config.program.display()),
    };
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return "its pipes could not be opened".into();
    };
    let outbox = shared.opened(child.id());
    let (alive, heard) = watch::channel(None);
    let words = tokio::spawn(last_words(stderr));
    let why = tokio::select! {
        why = read(shared, stdout, &alive) => why,
        why = write(shared, stdin, outbox) => why,
        why = watch_over(shared, heard) => why,
    };
    let mut detail = describe(&mut child, why).await;
    if let Ok(Ok(words)) = timeout(Duration::from_millis(500), words).await
        && !words.is_empty()
    {
        detail = format!("{detail}: {words}");
    }
    detail
}

/// Why a life ended, before the exit status is known.
enum Why {
    /// Its end of a pipe closed.
    Closed,
    /// It can't be trusted any more, and is killed.
    Killed(String),
}

async fn describe(child: &mut Child, why: Why) -> String {
    if let Why::Closed = why
        && let Ok(Ok(status)) = timeout(Duration::from_secs(1), child.wait()).await
    {
        return status.to_string();
    }
    let reason = match why {
        Why::Closed => "closed its pipe without ending".to_owned(),
        Why::Killed(reason) => reason,
    };
    match timeout(Duration::from_secs(5), child.kill()).await {
        Ok(Ok(())) => reason,
        Ok(Err(e)) => format!("{reason} (and could not be killed: {e})"),
        Err(_) => format!("{reason} (and did not end within 5 s of being killed)"),
    }
}

async fn read(shared: &Shared, stdout: ChildStdout, alive: &watch::Sender<Option<Instant>>) -> Why {
    let mut from = BufReader::new(stdout);
    let mut body = Vec::new();
    loop {
        let message = match read_frame(&mut from, &mut body).await {
            Ok(message) => message,
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Why::Killed(format!("said something that is no frame: {e}"));
            }
            Err(_) => return Why::Closed,
        };
        match message {
            Incoming::Message(message) => {
                if shared.dispatch(message) {
                    alive.send_replace(Some(Instant::now()));
                }
            }
            Incoming::Garbage { detail, .. } => {
                return Why::Killed(format!("said no message: {detail}"));
            }
            Incoming::End => return Why::Closed,
        }
    }
}

async fn read_frame(
    from: &mut BufReader<ChildStdout>,
    body: &mut Vec<u8>,
) -> io::Result<Incoming<FromChild>> {
    let mut head = [0_u8; 4];
    from.read_exact(&mut head).await?;
    body.resize(wire::length(head)?, 0);
    from.read_exact(body).await?;
    Ok(wire::decode(body))
}

async fn write(shared: &Shared, mut stdin: ChildStdin, mut outbox: mpsc::Receiver<ToChild>) -> Why {
    loop {
        let messages = tokio::select! {
            biased;
            () = shared.ahead.notified() => shared.take_ahead(),
            message = outbox.recv() => match message {
                Some(message) if shared.is_wanted(&message) => vec![message],
                Some(_) => continue,
                // The sender goes when the child is declared dead, which ends this as well.
                None => std::future::pending().await,
            },
        };
        for message in &messages {
            let sent = match wire::encode(message) {
                Ok(frame) => stdin.write_all(&frame).await,
                Err(e) => {
                    let error = BackendError::BadRequest { detail: e.to_string() };
                    let id = match message {
                        ToChild::Generate { id, .. }
                        | ToChild::Score { id, .. }
                        | ToChild::Tokenize { id, .. }
                        | ToChild::Detokenize { id, .. }
                        | ToChild::Cancel { id }
                        | ToChild::Pause { id }
                        | ToChild::DropCaches { id }
                        | ToChild::Health { id } => Some(*id),
                        ToChild::Resume => None,
                    };
                    shared.dispatch(FromChild::Error { id, error });
                    Ok(())
                }
            };
            if sent.is_err() {
                return Why::Closed;
            }
        }
    }
}

/// Ends when the child does not load, does not answer, or is stuck in a step.
async fn watch_over(shared: &Shared, mut heard: watch::Receiver<Option<Instant>>) -> Why {
    let (load, hang) = (shared.config.load, shared.config.hang);
    if timeout(load, heard.changed()).await.is_err() {
        return Why::Killed(format!("did not load its weights within {} s", load.as_secs()));
    }
    loop {
        shared.ask_health();
        sleep(HEALTH_EVERY).await;
        let silent = heard.borrow_and_update().map_or(Duration::ZERO, |at| at.elapsed());
        let stuck = shared.step_age();
        if silent.max(stuck) > hang {
            return Why::Killed(format!(
                "hung: last answer {} ms ago, step of {} ms, expected at most {} ms",
                silent.as_millis(),
                stuck.as_millis(),
                hang.as_millis()
            ));
        }
    }
}

/// Passes standard error on to the log; gives the last lines at its end.
async fn last_words(stderr: ChildStderr) -> String {
    let mut last = VecDeque::new();
    // A line is cut at a length that no sensible message reaches, so that memory stays bounded.
    let mut from = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut from).take(4096).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                tracing::warn!(target: "language_engine", "{text}");
                last.push_back(text);
                if last.len() > LAST_WORDS_LINES {
                    last.pop_front();
                }
            }
        }
    }
    Vec::from(last).join(" | ")
}
