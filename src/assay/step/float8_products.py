"""Multiply in float8 on a processor with AMX as torch does on other processors: by float32 copies.

With AMX, torch hands these products to oneDNN. Where the processor has no instructions for float8, oneDNN runs a plain
loop: 180 ms for 512 × 64 by 64 × 192 numbers, and 0.6 ms by copies (torch 2.13, a Xeon). Below the instruction sets of
AMX (`ONEDNN_MAX_CPU_ISA=AVX2`), it has no such product and fails. A run and what measures its rates both need this.
"""

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch._ops import OpOverload


def widen_products() -> None:
    """Keep products in float8 away from oneDNN for the rest of this process, if torch would hand them over."""
    if torch.cpu._is_amx_tile_supported():
        _avoid_onednn()


@cache
def _avoid_onednn() -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*may also be overridden", category=UserWarning)
        for name in ("default", "out"):
            operator = getattr(torch.ops.aten._scaled_mm, name)
            library.impl(operator, _without_onednn(operator), "CPU", with_keyset=True)  # type: ignore[no-untyped-call]
    return library


def _without_onednn(operator: OpOverload) -> Callable[..., torch.Tensor]:
    """Return a function that calls an operator's own kernel while oneDNN is off."""
    kernel = torch.library.get_kernel(operator, "CPU")

    def product(keys: torch.DispatchKeySet, *factors: object, **named: object) -> torch.Tensor:
        before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)
        try:
            result: torch.Tensor = kernel.call_boxed(keys, *factors, **named)
            return result
        finally:
            torch._C._set_mkldnn_enabled(before)

    return product
