//! The official OpenAI client for Python, which this project did not write, against `pipeline serve`.

use std::process::Command;

use system_tests::{Machine, Run, workspace};

#[tokio::test]
async fn the_official_openai_client_works_against_it() {
    let machine = Machine::take();
    let mut run = Run::serve(&machine, &[]);
    run.until_healthy().await;
    let script = workspace().join("tests/tools/openai_client.py");
    let base = format!("http://{}/v1", run.address());
    let asked = tokio::task::spawn_blocking(move || {
        // A proxy has no business between here and here.
        Command::new("python3")
            .arg(script)
            .args([&base, "smollm2-135m"])
            .env("NO_PROXY", "127.0.0.1")
            .output()
            .expect("python3 is installed by make setup")
    });
    let output = asked.await.expect("it was not cancelled");
    let said = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "(`make test` installs the client)\n{said}\n{told}\n{}",
        run.stderr()
    );
    assert!(said.contains("chat: logprobs: ok"), "it came to its end:\n{said}");
}
