//! From a URI to an open ffmpeg input. Its one rule: nothing but the source that was named is opened - a playlist
//! or a crafted file can't make ffmpeg fetch another file or address.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use ff::format::context::{Input, StreamIo};
use ffmpeg_next as ff;

use super::failure::Name;
use super::guard::Guard;
use super::pipe::Pipe;
use crate::error::MediaError;
use crate::source::{SourceSpec, Transport};

/// Containers that are read. Playlists, scripts and capture devices are left out on purpose.
const FORMATS: &str = "aac,ac3,aiff,amr,ape,apng,asf,au,av1,avi,caf,dv,eac3,flac,flv,gif,h261,h263,h264,hevc,\
    image2,bmp_pipe,jpeg_pipe,jpegxl_pipe,png_pipe,tiff_pipe,webp_pipe,ivf,loas,m4v,matroska,webm,mjpeg,\
    mov,mp4,m4a,3gp,3g2,mj2,mp3,mpeg,mpegts,mpegvideo,mpjpeg,mxf,nut,obu,ogg,rm,rtsp,tta,vc1,w64,wav,wtv,wv,\
    yuv4mpegpipe";

/// What the container may open besides the source itself.
const FILE_PROTOCOLS: &str = "file";
const RTSP_PROTOCOLS: &str = "rtsp,rtsps,rtp,tcp,udp,tls";

/// Receive buffer for RTP over UDP: a keyframe of a 4K camera must fit while the reader is busy.
const UDP_BUFFER_BYTES: &str = "2097152";
/// Media time (us) that may pass on opening until the codecs of a live source are known.
const ANALYSE_LIVE_US: &str = "2000000";

/// Where a source is.
#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    Stdin,
    File(PathBuf),
    Pipe(PathBuf),
    Rtsp(&'a str),
}

/// Opens the source and reads as much as is needed to know its tracks.
pub(super) fn open(
    spec: &SourceSpec,
    name: &Name,
    guard: &Arc<Guard>,
) -> Result<Input, MediaError> {
    initialise();
    guard.arm(spec.open_timeout);
    let poll = {
        let guard = guard.clone();
        move || guard.must_stop()
    };
    let mut options = ff::Dictionary::new();
    options.set("format_whitelist", FORMATS);
    let opened = match place(&spec.uri, name)? {
        Place::Rtsp(url) => {
            options.set("protocol_whitelist", RTSP_PROTOCOLS);
            let udp = spec.transport == Transport::Udp;
            options.set("rtsp_transport", if udp { "udp" } else { "tcp" });
            options.set("buffer_size", UDP_BUFFER_BYTES);
            // The guard decides; this only keeps ffmpeg from waiting longer between two looks at it.
            let timeout_us = spec.open_timeout.max(spec.read_timeout).as_micros();
            options.set("timeout", &timeout_us.to_string());
            options.set("analyzeduration", ANALYSE_LIVE_US);
            // Otherwise opening watches 20 pictures to guess their rate, and what arrives meanwhile is either
            // late or (fflags=nobuffer) thrown away together with its keyframe.
            options.set("fpsprobesize", "0");
            ff::format::input_with_interrupt_and_dictionary(url, poll, options)
        }
        Place::File(path) => {
            options.set("protocol_whitelist", FILE_PROTOCOLS);
            // A single picture named `img%03d.png` or `a*.png` is that file, not a sequence.
            options.set("pattern_type", "none");
            let url = format!("file:{}", path.display());
            ff::format::input_with_interrupt_and_dictionary(&url, poll, options)
        }
        Place::Stdin => from_pipe(Pipe::stdin(guard.clone()), name, options, poll)?,
        Place::Pipe(path) => from_pipe(Pipe::open(&path, guard.clone()), name, options, poll)?,
    };
    let stopped = name.stopped(guard, "opening", spec.open_timeout);
    match (opened, stopped) {
        (_, Some(stopped)) => Err(stopped),
        (Ok(input), None) => Ok(input),
        (Err(error), None) => Err(name.opening(error, spec.open_timeout)),
    }
}

fn from_pipe(
    pipe: io::Result<Pipe>,
    name: &Name,
    mut options: ff::Dictionary<'_>,
    poll: impl FnMut() -> bool + Send + 'static,
) -> Result<Result<Input, ff::Error>, MediaError> {
    options.set("protocol_whitelist", "none");
    let pipe = pipe.map_err(|e| not_found(name, &e))?;
    Ok(StreamIo::from_read(pipe)
        .and_then(|io| ff::format::input_from_stream_with_interrupt(io, None, Some(options), poll)))
}

fn place<'a>(uri: &'a str, name: &Name) -> Result<Place<'a>, MediaError> {
    if uri.contains('\0') {
        let detail = "a NUL character in the name".to_owned();
        return Err(MediaError::Refused { uri: name.uri.replace('\0', "\\0"), detail });
    }
    if uri == "-" {
        return Ok(Place::Stdin);
    }
    let path = match uri.split_once("://") {
        Some(("rtsp" | "rtsps", _)) => return Ok(Place::Rtsp(uri)),
        Some(("file", path)) => path,
        Some((scheme, _)) if is_scheme(scheme) && !Path::new(uri).exists() => {
            let detail = format!("protocol `{scheme}` (allowed: a path, file, rtsp, rtsps, -)");
            return Err(MediaError::Refused { uri: name.uri.clone(), detail });
        }
        _ => uri,
    };
    let path = PathBuf::from(path);
    let found = fs::metadata(&path).map_err(|e| not_found(name, &e))?;
    let kind = found.file_type();
    if kind.is_fifo() || kind.is_char_device() {
        return Ok(Place::Pipe(path));
    }
    let wrong = if kind.is_dir() {
        "a directory"
    } else if kind.is_socket() || kind.is_block_device() {
        "a socket or device"
    } else if found.len() == 0 {
        "an empty file"
    } else {
        return Ok(Place::File(path));
    };
    Err(MediaError::NotMedia { uri: name.uri.clone(), detail: wrong.to_owned() })
}

fn is_scheme(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(plain)
}

fn not_found(name: &Name, error: &io::Error) -> MediaError {
    MediaError::NotFound { uri: name.uri.clone(), detail: error.to_string() }
}

/// Once for the process. ffmpeg's own log is off: it prints URLs with their passwords.
fn initialise() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Only fills the table of error texts; the other parts of `init` were needed before FFmpeg 5.
        let _ = ff::init();
        ff::format::network::init();
        ff::log::set_level(ff::log::Level::Quiet);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        Name { uri: "x".to_owned(), live: false }
    }

    #[test]
    fn only_named_protocols_are_opened() {
        for uri in ["http://host/a.mp4", "concat://a|b", "HTTPS://h/x", "rtmp://h/x", "udp://h:1"] {
            let refused = place(uri, &name()).unwrap_err();
            assert!(matches!(refused, MediaError::Refused { .. }), "{uri}: {refused}");
        }
        assert_eq!(place("rtsp://h/x", &name()), Ok(Place::Rtsp("rtsp://h/x")));
        assert_eq!(place("-", &name()), Ok(Place::Stdin));
    }

    #[test]
    fn what_is_no_file_is_told_before_ffmpeg_sees_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("empty.mp4");
        fs::write(&file, "").unwrap();
        let told = |path: &Path| place(path.to_str().unwrap(), &name()).unwrap_err().to_string();
        assert!(told(dir.path()).contains("a directory"));
        assert!(told(&file).contains("an empty file"));
        assert!(told(&dir.path().join("none")).contains("not found"));
        assert!(place("a\0b", &name()).is_err());
    }
}
