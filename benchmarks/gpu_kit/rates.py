"""Rates of a device on random normal data: products by dtype, size and duration, copies, launches, attention, loops.

Rates of products depend on the data, because the device is limited by its power, and on how long they last. So each
size runs once and twenty times in a row, and clocks are taken beside it.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from taking import Given, Result, agreed, clocks, device

_PRODUCTS = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
_BURSTS = (1, 20)
_LAYERS = {
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "gelu": torch.nn.functional.gelu,
    "softmax": lambda x: x.softmax(-1),
    "add": lambda x: x + x,
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.1),
}
_KERNELS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")


def items(given: Given) -> Mapping[str, Callable[[], Result]]:
    """One item for the products of each dtype, and one each for copies, launches, loops and kernels of attention."""
    found = {f"products in {name}": partial(_products, name, given.tiny) for name in _PRODUCTS}
    found |= {f"loops in {name}": partial(_loops, name, given.tiny) for name in ("float32", "bfloat16")}
    found |= {"copies": partial(_copies, given.tiny), "launches": partial(_launches, given.tiny)}
    return found | {f"attention by {one}": partial(_attention, one, given.tiny) for one in _KERNELS}


def _products(name: str, tiny: bool) -> Result:
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    found: Result = {}
    for size in (64,) if tiny else (1024, 2048, 4096, 8192, 16384):
        if name == "float64" and size > 8192:
            continue
        a, b = torch.randn(2, size, size, device=device(), dtype=_PRODUCTS[name])
        for burst in _BURSTS:
            before, seconds = clocks(), agreed(partial(torch.mm, a, b), burst)
            flops = [2 * size**3 / one for one in seconds]
            found[f"{size} × {burst}"] = {"flops": flops, "before": before, "after": clocks()}
    return found


def _loops(name: str, tiny: bool) -> Result:
    """Seconds of element-wise layers, forward and with backward."""
    x = torch.randn(*((8, 32) if tiny else (16384, 768)), device=device(), dtype=_PRODUCTS[name], requires_grad=True)
    found: Result = {"shape": list(x.shape)}
    for layer, compute in _LAYERS.items():
        forward, both = agreed(partial(compute, x), 20), agreed(partial(_with_backward, compute, x), 20)
        found[layer] = {"forward": min(forward), "forward_and_backward": min(both)}
    return found


def _with_backward(compute: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    compute(x).sum().backward()


def _copies(tiny: bool) -> Result:
    source = torch.empty(2**10 if tiny else 2**30, dtype=torch.uint8, device=device())
    target, host = torch.empty_like(source), torch.empty(source.shape, dtype=torch.uint8)
    pinned = host.pin_memory() if device().type == "cuda" else host
    found = {
        "on the device": agreed(lambda: target.copy_(source), 5),
        "from pinned memory": agreed(lambda: target.copy_(pinned, non_blocking=True), 5),
        "from pageable memory": agreed(lambda: target.copy_(host), 5),
    }
    return {name: source.nbytes / min(seconds) for name, seconds in found.items()} | {"unit": "bytes copied a second"}


def _launches(tiny: bool) -> Result:
    """Seconds of a small operation in a long chain on one thread, forward and backward."""
    count = 16 if tiny else 512
    x = torch.ones(16, device=device(), requires_grad=True)

    def chain() -> torch.Tensor:
        y = x
        for _ in range(count):
            y = y + 1.0
        return y

    forward, both = min(agreed(chain, 5)), min(agreed(lambda: chain().sum().backward(), 5))
    return {"forward": forward / count, "backward": (both - forward) / count}


def _attention(name: str, tiny: bool) -> Result:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found: Result = {}
    for shape in [(1, 2, 32, 16)] if tiny else [(12, 12, 1024, 64), (64, 6, 256, 64), (1, 32, 2048, 64)]:
        q, k, v = torch.randn(3, *shape, device=device(), dtype=torch.bfloat16).requires_grad_().unbind()

        attend = partial(torch.nn.functional.scaled_dot_product_attention, key=k, value=v, is_causal=True)
        try:
            with sdpa_kernel(getattr(SDPBackend, name)):
                forward, both = min(agreed(partial(attend, q), 10)), min(agreed(partial(_with_backward, attend, q), 10))
        except RuntimeError as reason:
            found[str(shape)] = {"unavailable": str(reason).splitlines()[0]}
            continue
        found[str(shape)] = {"forward": forward, "forward_and_backward": both}
    return found
