//! Every ready configuration runs.

use std::time::Duration;

use system_tests::results::Received;
use system_tests::{Finished, Machine, RtspServer, Run, clips, workspace};

const LIMIT: Duration = Duration::from_secs(180);

#[tokio::test]
async fn every_ready_configuration_runs_on_a_short_clip() {
    let machine = Machine::take();
    let clip = clips::street();
    let input = clip.to_str().expect("plain");
    let mut ran = 0;
    let folder = std::fs::read_dir(workspace().join("configs")).expect("configs/ exists");
    for entry in folder {
        let path = entry.expect("configs/ can be listed").path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let shown = path.display();
        Finished::of(&["validate", path.to_str().expect("plain"), "--catalogue-costs"])
            .expect_code(0);
        let run = Run::start_file(&machine, &path, &["--input", input, "--output", "-"]);
        let finished = run.finish(LIMIT).await.expect_code(0);
        let received = Received::from_lines(&finished.stdout);
        received.expect_valid();
        let names = received.stream_names();
        assert_eq!(names.len(), 1, "{shown}: one input, one stream: {names:?}");
        received.expect_coverage(&names[0], clips::length_ms(&clip));
        ran += 1;
    }
    assert!(ran >= 5, "{ran} configurations ran");
}

#[tokio::test]
async fn the_live_camera_configuration_runs_on_a_camera() {
    let machine = Machine::take();
    let server = RtspServer::serve(&clips::street());
    let path = workspace().join("configs/live-camera.yaml");
    let mut run = Run::start_file(&machine, &path, &["--input", &server.loop_url()]);
    let mut subscriber = run.subscribe("").await;
    let received = subscriber.until(LIMIT, |r| r.results.len() >= 5).await;
    received.expect_valid();
    assert!(received.results.iter().all(|r| r.age_ms.is_some()), "a camera is live");
    run.signal("TERM");
    run.finish(Duration::from_secs(20)).await.expect_code(0);
}
