# Read by CMake before llama.cpp's own settings: its kernels are built for the processor at hand, as ONNX Runtime
# chooses its own at run time. A third faster at reading prompts with AVX-512 and its dot products (VNNI).
# For a binary that is to run on other processors: GGML_AVX512=OFF GGML_AVX_VNNI=OFF cargo build --release, with a
# target folder of its own. A binary that needs more than its processor has says so when it loads a model.
if(NOT CMAKE_CROSSCOMPILING AND EXISTS "/proc/cpuinfo")
    file(STRINGS "/proc/cpuinfo" pipeline_flags REGEX "^flags" LIMIT_COUNT 1)
    # pipeline_use(OPTION FLAG...): on when the processor has all these flags, unless somebody has said otherwise.
    function(pipeline_use option)
        foreach(flag ${ARGN})
            if(NOT "${pipeline_flags} " MATCHES "[ \t]${flag} ")
                return()
            endif()
        endforeach()
        if(NOT DEFINED CACHE{${option}})
            set(${option} ON CACHE BOOL "this processor has it")
        endif()
    endfunction()
    pipeline_use(GGML_AVX_VNNI avx_vnni)
    pipeline_use(GGML_AVX512 avx512f avx512cd avx512vl avx512dq avx512bw)
    # Parts of it count only with the whole.
    if(GGML_AVX512)
        pipeline_use(GGML_AVX512_VBMI avx512vbmi)
        pipeline_use(GGML_AVX512_VNNI avx512_vnni)
        pipeline_use(GGML_AVX512_BF16 avx512_bf16)
    endif()
endif()
