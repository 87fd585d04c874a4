//! What ffmpeg says, told as a [`MediaError`].

use std::time::Duration;

use ffmpeg_next as ff;

use super::guard::{Guard, Stop};
use crate::error::MediaError;

/// Which source, for messages.
#[derive(Clone, Debug)]
pub(super) struct Name {
    /// Masked.
    pub(super) uri: String,
    pub(super) live: bool,
}

impl Name {
    /// The guard ended what was being done, if it did: ffmpeg's own code then means nothing.
    pub(super) fn stopped(
        &self,
        guard: &Guard,
        doing: &'static str,
        limit: Duration,
    ) -> Option<MediaError> {
        let uri = self.uri.clone();
        Some(match guard.stop()? {
            Stop::Cancelled => MediaError::Cancelled { uri },
            Stop::TimedOut => MediaError::TimedOut { uri, doing, limit },
        })
    }

    /// An error on opening.
    pub(super) fn opening(&self, error: ff::Error, limit: Duration) -> MediaError {
        let uri = self.uri.clone();
        let detail = error.to_string();
        match error {
            ff::Error::HttpUnauthorized | ff::Error::HttpForbidden => {
                MediaError::Unauthorized { uri }
            }
            ff::Error::HttpNotFound => MediaError::NotFound { uri, detail },
            ff::Error::HttpBadRequest | ff::Error::HttpOther4xx => {
                MediaError::Refused { uri, detail }
            }
            ff::Error::HttpServerError => MediaError::Disconnected { uri, detail },
            ff::Error::ProtocolNotFound => MediaError::Refused { uri, detail },
            ff::Error::Other { errno } => match errno {
                libc::ENOENT
                | libc::EACCES
                | libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH => MediaError::NotFound { uri, detail },
                libc::ETIMEDOUT => MediaError::TimedOut { uri, doing: "opening", limit },
                // Also ffmpeg's bare -1, for an answer that it does not understand.
                libc::EPERM if self.live => {
                    let detail = "the server's answer was not understood".to_owned();
                    MediaError::Disconnected { uri, detail }
                }
                // A host name that does not resolve.
                libc::EIO if self.live => MediaError::NotFound { uri, detail },
                libc::EPERM => MediaError::NotFound { uri, detail },
                _ if self.live => MediaError::Disconnected { uri, detail },
                _ => MediaError::NotMedia { uri, detail },
            },
            // A camera that closes the connection half-way or answers nonsense may do better next time.
            ff::Error::Eof | ff::Error::InvalidData | ff::Error::Exit if self.live => {
                MediaError::Disconnected { uri, detail }
            }
            _ => MediaError::NotMedia { uri, detail },
        }
    }

    /// An error on reading on. End of file is none for a file.
    pub(super) fn reading(&self, error: ff::Error, limit: Duration) -> MediaError {
        let uri = self.uri.clone();
        match error {
            ff::Error::Other { errno: libc::ETIMEDOUT } => {
                MediaError::TimedOut { uri, doing: "reading", limit }
            }
            ff::Error::Eof => {
                MediaError::Disconnected { uri, detail: "the peer ended the stream".to_owned() }
            }
            error if self.live => MediaError::Disconnected { uri, detail: error.to_string() },
            error => MediaError::Disconnected { uri, detail: format!("read failed: {error}") },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_password_is_told_from_a_missing_stream() {
        let name = Name { uri: "rtsp://***@cam/1".to_owned(), live: true };
        let limit = Duration::from_secs(5);
        let told = name.opening(ff::Error::HttpUnauthorized, limit);
        assert_eq!(told.to_string(), "rtsp://***@cam/1: user or password refused");
        let told = name.opening(ff::Error::HttpNotFound, limit);
        assert!(matches!(told, MediaError::NotFound { .. }));
        let told = name.reading(ff::Error::Eof, limit);
        assert!(matches!(told, MediaError::Disconnected { .. }));
    }
}
