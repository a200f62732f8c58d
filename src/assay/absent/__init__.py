"""An absent GPU: torch's CUDA build runs whole training scripts on a machine that has no GPU.

A library of C (`c/`) takes the place of CUDA's runtime, driver, cuBLAS and cuDNN. Device memory is address space that
nobody touches. Kernels and products return at once. torch's allocator, workspaces, choice of kernels and captures are
real, so peaks of memory are those of the device. Values and times mean nothing.

`gpus` describes the GPUs. `toolchain` looks at the script's environment, `cuda_library` compiles the library for it,
and `launch` starts the script. `inside` is the observer in the script's process. `observation` is what it found, and
`script_answer` what follows from it.
"""
