//! The programs in `examples/`, against a live run.
#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::process::Stdio;
use std::time::Duration;

use system_tests::{Machine, Run, binary, clips, configs, workspace};
use tokio::process::Command;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(120);

/// Starts the program on a run of [`clips::street`] and hands out what it printed.
async fn prints(mut program: Command) -> String {
    let machine = Machine::take();
    let clip = clips::street();
    let input = clip.to_str().expect("plain");
    let mut run = Run::start(&machine, configs::LIVE_ON_FILES, &["--input", input, "--realtime"]);
    // The server answers from here on; the program itself does not try twice.
    drop(run.subscribe("").await);
    let url = format!("ws://{}/v1/results?after=0", run.address());
    let child = program
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the program starts");
    let output = timeout(LIMIT, child.wait_with_output()).await;
    let output = output.expect("it ends with the run").expect("it can be waited for");
    run.finish(LIMIT).await.expect_code(0);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn expect_answers(printed: &str) {
    assert!(printed.lines().count() >= 12, "a line per window of 12 s:\n{printed}");
    assert!(printed.contains("person"), "what was seen:\n{printed}");
    assert!(printed.contains("country"), "what was said:\n{printed}");
}

#[tokio::test]
async fn the_python_program_prints_answers() {
    let mut program = Command::new("/usr/bin/python3");
    program.arg("-u").arg(workspace().join("examples/subscribe.py"));
    expect_answers(&prints(program).await);
}

#[tokio::test]
async fn the_rust_program_prints_answers() {
    let program = binary().with_file_name("subscribe");
    assert!(program.is_file(), "not built: cargo build --release -p examples");
    expect_answers(&prints(Command::new(program)).await);
}
