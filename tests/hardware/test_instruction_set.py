"""The set that oneDNN would choose, by what the processor has and what the user allows."""

import pytest

from assay.hardware.instruction_set import instruction_set

AVX2 = ("sse4_1", "avx", "avx2")
CORE = (*AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq")
ZEN4 = (*CORE, "avx512_vnni", "avx512_bf16")
SAPPHIRE_RAPIDS = (*ZEN4, "avx_vnni", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16")


@pytest.mark.parametrize(
    ("flags", "newest"),
    [
        ((), ""),
        (("asimd", "bf16"), ""),
        (("sse4_1",), "sse41"),
        (AVX2, "avx2"),
        ((*AVX2, "avx_vnni"), "avx2_vnni"),
        (CORE, "avx512_core"),
        ((*AVX2, "avx512f"), "avx2"),
        (ZEN4, "avx512_core_bf16"),
        (SAPPHIRE_RAPIDS, "avx512_core_amx"),
    ],
)
def test_the_newest_set_whose_parts_are_all_there(flags: tuple[str, ...], newest: str) -> None:
    assert instruction_set(flags, {}) == newest


@pytest.mark.parametrize(
    ("allowed", "used"),
    [
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, "avx2"),
        ({"DNNL_MAX_CPU_ISA": "AVX512_CORE"}, "avx512_core"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX512_CORE"}, "avx2"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}, "avx2"),
        ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX"}, "avx512_core_bf16"),
        ({"ONEDNN_MAX_CPU_ISA": "DEFAULT"}, "avx512_core_bf16"),
        ({"ONEDNN_MAX_CPU_ISA": ""}, "avx512_core_bf16"),
    ],
)
def test_the_user_may_lower_it_and_not_raise_it(allowed: dict[str, str], used: str) -> None:
    assert instruction_set(ZEN4, allowed) == used
