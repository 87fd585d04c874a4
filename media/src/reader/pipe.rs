//! Reads pipes (standard input, named pipes) so that waiting for the writer ends when the guard says so: the
//! system's own `read` would block beyond any limit.

#![expect(
    unsafe_code,
    reason = "poll(2) and descriptor flags have no safe form in the standard library"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::guard::Guard;

/// How often the guard is asked while nothing comes.
const POLL_MS: libc::c_int = 50;

/// A readable pipe that can't seek.
pub(super) struct Pipe {
    file: File,
    guard: Arc<Guard>,
}

impl Pipe {
    /// Standard input.
    pub(super) fn stdin(guard: Arc<Guard>) -> io::Result<Self> {
        // SAFETY: duplicating a descriptor has no preconditions; a failure is reported as -1.
        let copy = unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `copy` was just opened and nobody else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(copy) };
        Ok(Pipe { file: File::from(owned), guard })
    }

    /// A named pipe or character device.
    pub(super) fn open(path: &Path, guard: Arc<Guard>) -> io::Result<Self> {
        // Without O_NONBLOCK opening a named pipe waits for its writer, beyond any limit.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        Ok(Pipe { file, guard })
    }
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.guard.must_stop() {
                return Err(io::Error::other("ended by the guard"));
            }
            let mut wait =
                libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: `wait` is one valid pollfd and lives through the call.
            let ready = unsafe { libc::poll(&raw mut wait, 1, POLL_MS) };
            if ready == 0 {
                continue;
            }
            match self.file.read(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;
    use crate::source::Cancel;
    use crate::time::SystemClock;

    #[test]
    fn a_pipe_without_writer_ends_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: `name` is a valid C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let guard = Guard::new(Arc::new(SystemClock::new()), Cancel::new());
        let mut pipe = Pipe::open(&path, guard.clone()).unwrap();
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"abc").unwrap();
        let mut buf = [0; 8];
        guard.arm(Duration::from_secs(30));
        assert_eq!(pipe.read(&mut buf).unwrap(), 3);
        guard.arm(Duration::from_millis(100));
        assert!(pipe.read(&mut buf).is_err());
        assert!(guard.stop().is_some());
    }
}
