//! The reader on real media: clips made with the `ffmpeg` command, RTSP from GStreamer's server.

// `cfg(test)` tells the lints that helpers here may unwrap as tests may.
#[cfg(test)]
mod damage;
#[cfg(test)]
mod files;
#[cfg(test)]
mod rtsp;
#[cfg(test)]
mod support;
