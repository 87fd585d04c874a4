//! `pipeline` as a child process: started, listened to, ended; nothing of it outlives the test.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::process::Child;
use tokio::time::timeout;

use crate::http::Http;
use crate::subscriber::Subscriber;
use crate::{Machine, binary, free_port};

/// A running `pipeline run`.
pub struct Run {
    child: Child,
    group: u32,
    port: u16,
    dir: TempDir,
    feeder: Option<std::process::Child>,
}

/// What is left of it.
#[derive(Debug)]
pub struct Finished {
    /// Exit status; none when a signal ended it.
    pub code: Option<i32>,
    /// Everything on standard output.
    pub stdout: String,
    /// Everything on standard error.
    pub stderr: String,
}

impl Run {
    /// `pipeline run CONFIG --listen 127.0.0.1:FREE ARGS...` for a configuration given as text.
    pub fn start<A: AsRef<OsStr>>(machine: &Machine, config: &str, args: &[A]) -> Run {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, config).expect("the temporary folder takes a file");
        Run::spawn(machine, dir, &path, args, Stdio::null())
    }

    /// The same for a configuration file.
    pub fn start_file<A: AsRef<OsStr>>(machine: &Machine, config: &Path, args: &[A]) -> Run {
        let dir = tempfile::tempdir().expect("a temporary folder");
        Run::spawn(machine, dir, config, args, Stdio::null())
    }

    /// `pipeline serve --listen 127.0.0.1:FREE ARGS...`
    pub fn serve(machine: &Machine, args: &[&str]) -> Run {
        let dir = tempfile::tempdir().expect("a temporary folder");
        Run::call(machine, dir, &["serve".as_ref()], args, Stdio::null())
    }

    /// The same with a file as standard input.
    pub fn start_fed<A: AsRef<OsStr>>(
        machine: &Machine,
        config: &str,
        args: &[A],
        stdin: &Path,
    ) -> Run {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, config).expect("the temporary folder takes a file");
        let file = File::open(stdin).unwrap_or_else(|e| panic!("{}: {e}", stdin.display()));
        // Through a pipe: a plain file could be sought in, a camera's output can't.
        let mut feeder = Command::new("cat")
            .stdin(file)
            .stdout(Stdio::piped())
            .spawn()
            .expect("every system has cat");
        let pipe = feeder.stdout.take().expect("it was asked to be piped");
        let mut run = Run::spawn(machine, dir, &path, args, pipe.into());
        run.feeder = Some(feeder);
        run
    }

    fn spawn<A: AsRef<OsStr>>(
        machine: &Machine,
        dir: TempDir,
        config: &Path,
        args: &[A],
        stdin: Stdio,
    ) -> Run {
        Run::call(machine, dir, &["run".as_ref(), config.as_os_str()], args, stdin)
    }

    fn call<A: AsRef<OsStr>>(
        _machine: &Machine,
        dir: TempDir,
        command: &[&OsStr],
        args: &[A],
        stdin: Stdio,
    ) -> Run {
        let port = free_port();
        let into = |name: &str| -> Stdio {
            File::create(dir.path().join(name)).expect("the temporary folder takes a file").into()
        };
        let child = tokio::process::Command::new(binary())
            .args(command)
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(args)
            .stdin(stdin)
            .stdout(into("stdout"))
            .stderr(into("stderr"))
            // A group of its own: an interrupt of the test runner is not for it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        let group = child.id().expect("it was not waited for yet");
        Run { child, group, port, dir, feeder: None }
    }

    /// Base of its addresses: `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Asks `/health` until the language model takes work; each answer before says when to come back.
    pub async fn until_healthy(&mut self) -> Http {
        let http = Http::new(&self.address());
        let healthy = timeout(Duration::from_secs(60), async {
            loop {
                if let Ok(Some(status)) = self.child.try_wait() {
                    panic!("ended ({status}) before it was healthy:\n{}", self.stderr());
                }
                match http.try_get("/health").await {
                    Some(answer) if answer.status == 200 => return,
                    Some(answer) => {
                        assert_eq!(answer.status, 503, "{answer:?}");
                        assert!(answer.header("retry-after").is_some(), "{answer:?}");
                    }
                    None => {}
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        if healthy.await.is_err() {
            panic!("not healthy in 60 s:\n{}", self.stderr());
        }
        http
    }

    /// Connects to `/v1/results?QUERY` as soon as the server answers.
    pub async fn subscribe(&mut self, query: &str) -> Subscriber {
        let url = format!("ws://{}/v1/results?{query}", self.address());
        let started = timeout(Duration::from_secs(60), async {
            loop {
                if let Ok(Some(status)) = self.child.try_wait() {
                    panic!("ended ({status}) before it served {url}:\n{}", self.stderr());
                }
                if let Some(subscriber) = Subscriber::try_connect(&url).await {
                    return subscriber;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        match started.await {
            Ok(subscriber) => subscriber,
            Err(_) => panic!("{url} did not answer in 60 s:\n{}", self.stderr()),
        }
    }

    /// Sends a signal by name (`TERM`, `INT`) to the program alone.
    pub fn signal(&self, name: &str) {
        send(name, &self.group.to_string());
    }

    /// Kills its language engine; false when there is none at the moment.
    pub fn kill_language_engine(&self) -> bool {
        let engine = children(self.group).find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|b| *b == 0).any(|word| word == b"language-engine")
        });
        engine.inspect(|pid| send("KILL", &pid.to_string())).is_some()
    }

    /// Ends it at once, as a power cut would; the language engine ends when its pipe does.
    pub async fn kill(mut self) -> Finished {
        send("KILL", &format!("-{}", self.group));
        self.finish_within(Duration::from_secs(10)).await
    }

    /// Waits for it to end by itself.
    pub async fn finish(mut self, limit: Duration) -> Finished {
        self.finish_within(limit).await
    }

    async fn finish_within(&mut self, limit: Duration) -> Finished {
        match timeout(limit, self.child.wait()).await {
            Ok(status) => Finished {
                code: status.expect("a child can be waited for").code(),
                stdout: self.read("stdout"),
                stderr: self.stderr(),
            },
            Err(_) => panic!("did not end in {limit:?}:\n{}", self.stderr()),
        }
    }

    /// What it said on standard error so far.
    pub fn stderr(&self) -> String {
        self.read("stderr")
    }

    /// A folder of this run's own.
    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.dir.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        send("KILL", &format!("-{}", self.group));
        if let Some(feeder) = &mut self.feeder {
            let _ = feeder.kill();
            let _ = feeder.wait();
        }
    }
}

impl Finished {
    /// Fails unless the exit status is `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Finished {
        assert_eq!(self.code, Some(code), "exit status; standard error:\n{}", self.stderr);
        self
    }

    /// `pipeline ARGS...` to its end, for calls that do not run anything.
    pub fn of<A: AsRef<OsStr>>(args: &[A]) -> Finished {
        Finished::with(&[], args)
    }

    /// The same with variables in its environment.
    pub fn with<A: AsRef<OsStr>>(variables: &[(&str, &OsStr)], args: &[A]) -> Finished {
        let output = Command::new(binary())
            .args(args)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("the binary starts");
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Processes that `parent` started and that are still there.
fn children(parent: u32) -> impl Iterator<Item = u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(move |pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // `pid (name) state ppid …`, where a name may hold anything.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().nth(1) == Some(&parent.to_string())
    })
}

fn send(signal: &str, target: &str) {
    // One that is gone already is fine.
    let _ = Command::new("kill").args(["-s", signal, "--", target]).stderr(Stdio::null()).status();
}
