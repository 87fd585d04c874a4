//! The one system call for a thread's priority, which the standard library lacks.
#![expect(
    unsafe_code,
    reason = "setpriority takes no pointers; it is unsafe only as a foreign function"
)]

/// Lowers the calling thread's priority by `by`; what the system refuses is logged and left.
pub(super) fn lower(by: i32) {
    if by <= 0 {
        return;
    }
    // SAFETY: integers only. On Linux, PRIO_PROCESS with 0 means the calling thread.
    let failed = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, by) } != 0;
    if failed {
        let error = std::io::Error::last_os_error();
        tracing::warn!(nice = by, %error, "lane priority not lowered");
    }
}
