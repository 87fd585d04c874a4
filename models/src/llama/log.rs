//! llama.cpp's log lines become `tracing` events, and the last complaint is kept for error messages: the C API
//! says only "null", its log says why.

#![expect(unsafe_code, reason = "a C callback")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, Once, PoisonError};

use llama_cpp_sys_2 as ffi;

static START: Once = Once::new();
static LAST_COMPLAINT: Mutex<String> = Mutex::new(String::new());

/// Starts the backend once per process and takes its log.
pub(super) fn start_backend() {
    START.call_once(|| {
        // SAFETY: both take no memory of ours; the callback is a plain function that lives for ever.
        unsafe {
            ffi::llama_log_set(Some(on_log), std::ptr::null_mut());
            ffi::llama_backend_init();
        }
    });
}

/// The last warning or error, taken out; `otherwise` when there was none.
pub(super) fn last_complaint(otherwise: &str) -> String {
    let text = std::mem::take(&mut *LAST_COMPLAINT.lock().unwrap_or_else(PoisonError::into_inner));
    if text.is_empty() { otherwise.to_owned() } else { text }
}

unsafe extern "C" fn on_log(level: ffi::ggml_log_level, text: *const c_char, _data: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: llama.cpp passes a NUL-terminated string that is valid during the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let line = text.trim();
    if line.is_empty() {
        return;
    }
    if level == ffi::GGML_LOG_LEVEL_ERROR || level == ffi::GGML_LOG_LEVEL_WARN {
        tracing::debug!(target: "llama", "{line}");
        if level == ffi::GGML_LOG_LEVEL_ERROR {
            let mut last = LAST_COMPLAINT.lock().unwrap_or_else(PoisonError::into_inner);
            line.clone_into(&mut last);
        }
    } else {
        tracing::trace!(target: "llama", "{line}");
    }
}
