//! What can go wrong between a URI and its frames. Every message names the source, what was found and what
//! was expected; user names, passwords and signatures in URIs are masked before they get here.

use std::time::Duration;

use thiserror::Error;

/// Why a source could not be opened or read on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MediaError {
    /// The file or host is not there.
    #[error("{uri}: not found ({detail})")]
    NotFound {
        /// Masked URI.
        uri: String,
        /// What the system said.
        detail: String,
    },
    /// There is something, but it is no media file that can be read.
    #[error("{uri}: not a readable media file ({detail})")]
    NotMedia {
        /// Masked URI.
        uri: String,
        /// What was found.
        detail: String,
    },
    /// Neither a video nor an audio nor a subtitle track.
    #[error("{uri}: no video or audio track (found: {found})")]
    NoTracks {
        /// Masked URI.
        uri: String,
        /// Track kinds that were found.
        found: String,
    },
    /// A codec or pixel format without a decoder.
    #[error("{uri}: {track} track: {found} is not supported ({supported})")]
    Unsupported {
        /// Masked URI.
        uri: String,
        /// `video` or `audio`.
        track: &'static str,
        /// What was found.
        found: String,
        /// What is.
        supported: String,
    },
    /// User or password refused.
    #[error("{uri}: user or password refused")]
    Unauthorized {
        /// Masked URI.
        uri: String,
    },
    /// No answer in time.
    #[error("{uri}: no answer within {} ms while {doing}", limit.as_millis())]
    TimedOut {
        /// Masked URI.
        uri: String,
        /// `opening` or `reading`.
        doing: &'static str,
        /// The limit that passed.
        limit: Duration,
    },
    /// The peer closed the connection or the read failed.
    #[error("{uri}: connection lost ({detail})")]
    Disconnected {
        /// Masked URI.
        uri: String,
        /// What the system said.
        detail: String,
    },
    /// Somebody asked to stop.
    #[error("{uri}: cancelled")]
    Cancelled {
        /// Masked URI.
        uri: String,
    },
    /// A protocol, size or option outside the stated limits.
    #[error("{uri}: refused: {detail}")]
    Refused {
        /// Masked URI.
        uri: String,
        /// Which limit.
        detail: String,
    },
}

impl MediaError {
    /// Whether trying again can help: cameras reboot, files do not change.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            MediaError::NotFound { .. }
                | MediaError::TimedOut { .. }
                | MediaError::Disconnected { .. }
                | MediaError::Unauthorized { .. }
        )
    }
}
