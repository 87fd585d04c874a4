//! An RTSP camera that this project did not write, over TCP and over UDP.

use std::time::Duration;

use system_tests::{Machine, RtspServer, Run, clips, configs};

const LIMIT: Duration = Duration::from_secs(90);
const WINDOWS: usize = 8;

async fn a_camera_is_analysed_over(transport: &str) {
    let machine = Machine::take();
    let server = RtspServer::serve(&clips::street());
    let stream =
        format!("[ {{ id: gate, uri: \"{}\", transport: {transport} }} ]", server.loop_url());
    let mut run =
        Run::start(&machine, &configs::LIVE.replace("{streams}", &stream), &[] as &[&str]);
    let mut subscriber = run.subscribe("stream=gate").await;
    let received = subscriber.until(LIMIT, |r| r.first_of("gate").len() >= WINDOWS).await;

    received.expect_valid();
    received.expect_sequence("gate");
    let windows = received.first_of("gate");
    let joined = windows.windows(2).all(|w| w[0].window.index + 1 == w[1].window.index);
    assert!(joined, "windows in order without a gap");
    for result in &windows {
        assert!(result.age_ms.is_some() && result.budget_ms.is_some(), "live: {result:?}");
    }
    let with_person = received.windows_with("person");
    assert!(with_person * 2 >= windows.len(), "{with_person} of {} windows", windows.len());
    let heard = windows.iter().flat_map(|r| &r.audio).flat_map(|a| &a.speech);
    assert!(heard.filter(|s| !s.text.is_empty()).count() > 0, "the speaker is heard");

    // Asked to stop, it drains and says that all is well.
    run.signal("TERM");
    run.finish(Duration::from_secs(20)).await.expect_code(0);
}

#[tokio::test]
async fn a_camera_is_analysed_over_tcp() {
    a_camera_is_analysed_over("tcp").await;
}

#[tokio::test]
async fn a_camera_is_analysed_over_udp() {
    a_camera_is_analysed_over("udp").await;
}
