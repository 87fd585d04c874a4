//! RTSP over TCP and UDP against GStreamer's server on loopback.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{self, EVERYTHING, make, open, read_until, spec};
use media::{MediaError, Reader, SourceSpec, TrackKind, Transport};

/// The server of `tests/tools`, ended with this value.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(file: &Path, more: &[&str]) -> Self {
        let script =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/tools/rtsp_server.py");
        let mut child = Command::new("/usr/bin/python3")
            .arg(script)
            .arg(file)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("port ").map(str::parse);
        Server { port: port.unwrap().unwrap(), child }
    }

    fn url(&self, path: &str) -> String {
        format!("rtsp://127.0.0.1:{}/{path}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two seconds of picture and sound, a keyframe each second.
fn clip(dir: &Path) -> PathBuf {
    let video = "-f lavfi -i testsrc2=size=320x180:rate=25 -c:v libx264 -preset veryfast";
    let args = format!(
        "-f lavfi -i sine=sample_rate=44100 {video} -g 25 -bf 0 -pix_fmt yuv420p -c:a aac -t 2"
    );
    make(dir, "clip.mp4", &args)
}

fn over(transport: Transport, uri: String) -> SourceSpec {
    SourceSpec { transport, ..spec(uri, EVERYTHING) }
}

/// Opens a stream that is there. On a busy machine the server may refuse once; a source would try again too.
fn connect(spec: &SourceSpec) -> Box<dyn Reader> {
    let mut refused = Vec::new();
    for _ in 0..3 {
        match open(spec) {
            Ok(reader) => return reader,
            Err(error) => refused.push(error),
        }
    }
    panic!("{refused:?}");
}

#[test]
fn a_whole_clip_comes_over_tcp_and_its_end_is_a_disconnect() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&clip(dir.path()), &[]);
    let mut reader = connect(&over(Transport::Tcp, server.url("once")));
    assert!(reader.info().has(TrackKind::Video) && reader.info().has(TrackKind::Audio));
    let whole = read_until(&mut *reader, |_| false);
    let error = whole.error.clone().unwrap();
    assert!(matches!(error, MediaError::Disconnected { .. }), "{error}");
    assert!(error.is_transient());
    assert!((48..=50).contains(&whole.frames.len()), "{} frames", whole.frames.len());
    let seconds = whole.sound_len() as f64 / 16_000.0;
    assert!((1.7..2.2).contains(&seconds), "{seconds} s of sound");
    assert!(whole.frames.windows(2).all(|w| w[0].arrival <= w[1].arrival));
    // Asked again it says the same.
    assert_eq!(reader.next().unwrap_err(), error);
}

#[test]
fn a_loop_goes_on_over_its_seam_by_tcp_and_udp() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&clip(dir.path()), &[]);
    for transport in [Transport::Tcp, Transport::Udp] {
        let mut reader = connect(&over(transport, server.url("loop")));
        let whole = read_until(&mut *reader, |w| w.frames.len() >= 75);
        assert!(whole.error.is_none(), "{transport:?}: {:?}", whole.error);
        let last = whole.frames.last().unwrap().pts.ms();
        assert!((2_900..3_800).contains(&last), "{transport:?}: frame 75 at {last} ms");
        assert!(whole.sound_len() > 20_000, "{transport:?}");
    }
}

#[test]
fn a_password_is_needed_and_never_told() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        Server::start(&clip(dir.path()), &["--user", "admin", "--password", "p@ss:w/rd#1"]);
    let with = |login: &str| server.url("loop").replace("127", &format!("{login}@127"));
    let right = with("admin:p%40ss%3Aw%2Frd%231");
    let whole = read_until(&mut *connect(&over(Transport::Tcp, right)), |w| !w.frames.is_empty());
    assert_eq!(whole.frames.len(), 1);
    for wrong in [with("admin:secret"), server.url("loop")] {
        let error = open(&over(Transport::Tcp, wrong)).err().unwrap();
        assert!(matches!(error, MediaError::Unauthorized { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn a_missing_path_or_server_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&clip(dir.path()), &[]);
    let missing = open(&over(Transport::Tcp, server.url("none"))).err().unwrap();
    assert!(matches!(missing, MediaError::NotFound { .. }), "{missing}");
    let url = server.url("loop");
    drop(server);
    let gone = open(&over(Transport::Tcp, url)).err().unwrap();
    assert!(matches!(gone, MediaError::NotFound { .. }), "{gone}");
}

#[test]
fn a_killed_server_is_a_disconnect() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(&clip(dir.path()), &[]);
    let mut reader = connect(&over(Transport::Tcp, server.url("loop")));
    let before = read_until(&mut *reader, |w| !w.frames.is_empty());
    assert!(before.error.is_none());
    server.child.kill().unwrap();
    let error = std::iter::repeat_with(|| reader.next()).find_map(Result::err).unwrap();
    assert!(matches!(error, MediaError::Disconnected { .. }), "{error}");
}

#[test]
fn a_server_that_stops_answering_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&clip(dir.path()), &[]);
    let limit = Duration::from_millis(700);
    let spec = SourceSpec { read_timeout: limit, ..over(Transport::Tcp, server.url("loop")) };
    let mut reader = connect(&spec);
    let before = read_until(&mut *reader, |w| !w.frames.is_empty());
    assert!(before.error.is_none());
    support::run("kill", &["-STOP", &server.child.id().to_string()]);
    let error = std::iter::repeat_with(|| reader.next()).find_map(Result::err).unwrap();
    assert!(matches!(error, MediaError::TimedOut { doing: "reading", .. }), "{error}");
}

#[test]
fn a_port_that_accepts_and_says_nothing_times_out() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtsp://user:secret@{}/x", mute.local_addr().unwrap());
    let limit = Duration::from_millis(500);
    let spec = SourceSpec { open_timeout: limit, ..over(Transport::Tcp, url) };
    let error = open(&spec).err().unwrap();
    assert!(matches!(error, MediaError::TimedOut { doing: "opening", .. }), "{error}");
    assert!(!error.to_string().contains("secret"));
}
