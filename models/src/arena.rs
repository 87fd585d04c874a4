//! One pool of working memory for all sessions of ONNX Runtime.
//!
//! Its neighbour is `runtime`. With a pool each, as the library has it by default, every session keeps the most that it
//! ever needed, and one that meets new shapes goes on growing; two lanes never need more than two sessions' worth.

#![expect(unsafe_code, reason = "ONNX Runtime's C API; ort has no call for a shared allocator")]

use ort::AsPointer;
use ort::environment::Environment;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};

/// Makes the pool. Sessions use it when they are built with `with_env_allocators`.
///
/// # Errors
/// What the library said.
pub(crate) fn share(environment: &Environment) -> ort::Result<()> {
    let cpu = AllocationDevice::CPU;
    let memory = MemoryInfo::new(cpu, 0, AllocatorType::Arena, MemoryType::Default)?;
    // SAFETY: both pointers are of live objects, the library copies what it keeps of the second, and a null
    // configuration asks for its defaults; the status is handed on and freed once.
    unsafe {
        let register = ort::api().CreateAndRegisterAllocator;
        let status = register(environment.ptr().cast_mut(), memory.ptr(), std::ptr::null());
        ort::Error::result_from_status(status)
    }
}
