"""The instruction set that oneDNN uses on an x86 processor: the newest that the processor has and the user allows.

The library chooses its kernels by it. It therefore decides the speed of 16-bit products, the last bits of their
results, and their scratch (`cost.scratch`). `ONEDNN_MAX_CPU_ISA` lowers it for a process; the older name
`DNNL_MAX_CPU_ISA` applies if the other is not set. Names and their order are oneDNN's (oneapi-src.github.io/oneDNN,
"CPU Dispatcher Control").
"""

from collections.abc import Collection, Mapping

_LEVELS: Mapping[str, tuple[str, ...]] = {
    "sse41": ("sse4_1",),
    "avx": ("avx",),
    "avx2": ("avx2",),
    "avx2_vnni": ("avx_vnni",),
    "avx512_core": ("avx512f", "avx512bw", "avx512vl", "avx512dq"),
    "avx512_core_vnni": ("avx512_vnni",),
    "avx512_core_bf16": ("avx512_bf16",),
    "avx512_core_fp16": ("avx512_fp16",),
    "avx512_core_amx": ("amx_tile", "amx_int8", "amx_bf16"),
    "avx512_core_amx_fp16": ("amx_fp16",),
}
"""Processor flags that each set adds to its predecessors, in Linux's names, from the oldest set to the newest."""
_BESIDE = {"avx2_vnni"}
"""Sets that newer sets do not require."""
_ALLOWED = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def instruction_set(flags: Collection[str], environment: Mapping[str, str]) -> str:
    """Return the set's name in lower case; empty if the processor has none of them."""
    allowed, known = _allowed(environment), set(flags)
    newest = ""
    for name, needed in _LEVELS.items():
        if known.issuperset(needed):
            newest = name
        elif name not in _BESIDE:
            break
        if name == allowed:
            break
    return newest


def is_lowered(environment: Mapping[str, str]) -> bool:
    """True if the user allows fewer instructions than the processor may have."""
    return _allowed(environment) not in ("", "default", "all")


def _allowed(environment: Mapping[str, str]) -> str:
    return next((environment[name].lower() for name in _ALLOWED if environment.get(name)), "")
