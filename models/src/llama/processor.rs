//! Whether this processor has what llama.cpp's kernels were built for. Without this look a binary from another machine
//! would end with an illegal instruction in the middle of a model.

#![expect(unsafe_code, reason = "llama.cpp's C API")]

use std::ffi::c_int;
use std::path::Path;

use llama_cpp_sys_2 as ffi;

use super::quantise::failed;
use crate::model::ModelError;

/// What the kernels use, by name: whether they were built with it, whether it is there.
type Extension = (&'static str, bool, bool);

/// # Errors
/// `Load` of `path`, naming what the processor lacks and how to build without it.
pub(super) fn check(path: &Path) -> Result<(), ModelError> {
    lacking(&extensions()).map_or(Ok(()), |detail| Err(failed(path, &detail)))
}

fn lacking(extensions: &[Extension]) -> Option<String> {
    let lacking = extensions.iter().filter(|(_, built, here)| *built && !here);
    let names: Vec<&str> = lacking.map(|extension| extension.0).collect();
    if names.is_empty() {
        return None;
    }
    let names = names.join(", ");
    Some(format!(
        "this program's language engine was built for a processor with {names}, which this one lacks: build it on \
         this machine, or anywhere with GGML_AVX512=OFF GGML_AVX_VNNI=OFF in the environment"
    ))
}

#[cfg(target_arch = "x86_64")]
fn extensions() -> Vec<Extension> {
    use std::arch::is_x86_feature_detected as here;
    // SAFETY: takes nothing and returns what the compiler was told.
    let built = |has: unsafe extern "C" fn() -> c_int| unsafe { has() } != 0;
    vec![
        ("AVX2", built(ffi::ggml_cpu_has_avx2), here!("avx2")),
        ("FMA", built(ffi::ggml_cpu_has_fma), here!("fma")),
        ("F16C", built(ffi::ggml_cpu_has_f16c), here!("f16c")),
        ("BMI2", built(ffi::ggml_cpu_has_bmi2), here!("bmi2")),
        ("AVX-VNNI", built(ffi::ggml_cpu_has_avx_vnni), here!("avxvnni")),
        ("AVX-512", built(ffi::ggml_cpu_has_avx512), here!("avx512f") && here!("avx512bw")),
        ("AVX-512 VBMI", built(ffi::ggml_cpu_has_avx512_vbmi), here!("avx512vbmi")),
        ("AVX-512 VNNI", built(ffi::ggml_cpu_has_avx512_vnni), here!("avx512vnni")),
        ("AVX-512 BF16", built(ffi::ggml_cpu_has_avx512_bf16), here!("avx512bf16")),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn extensions() -> Vec<Extension> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named_with_a_way_out() {
        let some = [("AVX2", true, true), ("AVX-512", true, false), ("AMX", false, false)];
        let detail = lacking(&some).unwrap();
        assert!(detail.contains("a processor with AVX-512, which") && detail.contains("=OFF"));
        assert_eq!(lacking(&[("AVX2", true, true), ("AMX", false, true)]), None);
    }

    /// Kernels are built for this machine, so both columns are the same here unless somebody asked for less.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_kernels_use_what_this_processor_has() {
        if std::env::var_os("GGML_AVX512").is_some() || std::env::var_os("GGML_AVX_VNNI").is_some()
        {
            return;
        }
        let unused: Vec<Extension> =
            extensions().into_iter().filter(|(_, built, here)| *here && !built).collect();
        assert!(
            unused.is_empty(),
            "not used: {unused:?} (built before scripts/llama.cmake was there or changed, which cargo does not see? \
             then: cargo clean --release -p llama-cpp-sys-2)"
        );
    }
}
