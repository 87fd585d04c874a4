//! What the other tests stand on is what it says: clips and the RTSP server, asked by ffprobe.
#![expect(clippy::expect_used, reason = "a helper that fails is a failed test")]

use std::process::Command;

use system_tests::{RtspServer, clips};

/// `codec_type,codec_name` of each track, as ffprobe has it.
#[track_caller]
fn tracks(options: &[&str], input: &str) -> Vec<String> {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-of", "csv=p=0", "-show_entries", "stream=codec_name,codec_type"])
        .args(options)
        .arg(input)
        .output()
        .expect("ffprobe is installed by make setup");
    assert!(output.status.success(), "{input}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn clips_have_the_tracks_and_lengths_they_claim() {
    let of = |path: &std::path::Path| tracks(&[], path.to_str().expect("plain"));
    let street = clips::street();
    assert_eq!(of(&street), ["h264,video", "aac,audio"]);
    assert_eq!(clips::frames(&street), 12 * 25);
    let length_ms = clips::length_ms(&street);
    assert!((12_000..12_100).contains(&length_ms), "{length_ms}");
    assert_eq!(of(&clips::silent()), ["h264,video"]);
    assert_eq!(of(&clips::sound()), ["aac,audio"]);
    assert_eq!(of(&clips::matroska()), ["h264,video", "aac,audio"]);
    assert_eq!(of(&clips::spoken("jfk/jfk.wav")), ["aac,audio"]);
    for clip in clips::short(2) {
        assert_eq!(of(&clip), ["h264,video", "aac,audio"]);
        assert_eq!(clips::frames(&clip), 50);
    }
}

#[test]
fn the_rtsp_server_serves_over_tcp_and_udp() {
    let server = RtspServer::serve(&clips::street());
    for transport in ["tcp", "udp"] {
        for url in [server.loop_url(), server.once_url()] {
            let found = tracks(&["-rtsp_transport", transport], &url);
            assert_eq!(found, ["h264,video", "aac,audio"], "{url} over {transport}");
        }
    }
}
