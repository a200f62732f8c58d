"""Measure how fast single operators are on this CPU, forward and backward, at a few sizes.

Each operator runs in a short chain, each time on the result of the time before, and then the chain is differentiated.
So arguments are as cold as in training, where other tensors were touched in between. The launch of each operator is
subtracted, because a roofline adds it. Malloc keeps freed blocks, as it does in a run; tensors beyond its limit are
fresh memory each time, which is part of their speed.

Trials are repeated: the fastest counts, once a second trial confirms it. A trial may be too slow because the machine
was busy, but it cannot be too fast, so the fastest counts. A time that no second trial confirms is not trusted. Trials
are repeated until the two fastest differ by at most a tenth.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import psutil
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.hardware import Rates
from assay.hardware.detect import CALLING, FLASH_DEPTHS, MOVING, OperatorSpeed, flash_key, key_of
from assay.instruments.memory.resident_memory import keep_freed_memory
from assay.instruments.rates.machine_load import own_seconds

_DIFFERENCE = 0.1
_LEAST, _MOST = 3, 30
"""Number of trials. The maximum is exceeded only while the allowed time lasts."""


class Agreed(NamedTuple):
    """The fastest trial."""

    seconds: float
    confirmed: bool
    """True if a second trial agrees with it."""


def repeat_trial(trial: Callable[[], float], seconds: float = 0.0) -> Agreed:
    """Repeat `trial`, which returns its seconds, for at least `seconds` and until the two fastest agree.

    If they never agree, stop after 30 trials, unconfirmed.
    """
    found: list[float] = []
    end = time.perf_counter() + seconds
    while True:
        found = sorted((*found, trial()))
        confirmed = len(found) >= _LEAST and found[1] <= found[0] * (1 + _DIFFERENCE)
        if time.perf_counter() >= end and (confirmed or len(found) >= _MOST):
            return Agreed(found[0], confirmed)


class OthersShare:
    """Context that measures the share of all cores used by other programs and by other guests of the host.

    `share` is set when the context exits; None: unknown.
    """

    def __enter__(self) -> "OthersShare":
        self._begun = _processor_seconds()
        self.share: float | None = None
        return self

    def __exit__(self, *_: object) -> None:
        busy, own, wall = (after - before for after, before in zip(_processor_seconds(), self._begun, strict=True))
        cores = psutil.cpu_count() or 1
        self.share = min(1.0, max(0.0, (busy - own) / (wall * cores))) if wall > 0 else None


def _processor_seconds() -> tuple[float, float, float]:
    """Seconds so far: busy on all cores, with stolen time; used by this process and its descendants; wall clock."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for name in names), own_seconds(), time.perf_counter()


DTYPES = ("float32", "bfloat16")
_SIZES, _FRESH = (2**16, 2**19, 2**23), 2**26
"""Bytes of arguments and results, in caches and beyond; and beyond what malloc keeps."""
_CHAIN_BYTES = 6 * 2**20
"""Bytes that a chain should touch."""
_WIDTH = 256
_ROWS, _HEADS, _LENGTH = 1024, 32, 128
_WEIGHTS, _DEPTHS, _LENGTHS = (32, 64, 128, 256, 512), (16, 32, 64), (64, 128, 256)
"""Widths of square weights, depths of attention heads, and lengths of sequences."""
_FRESH_ONES = ("aten.clone", "aten._log_softmax")
"""Operators that are also measured on fresh memory."""
_CAST = "aten._to_copy"
"""Operator of which a link has two: to the other width and back."""
_MODULES = 32
"""Modules of each kind in a chain on a few numbers."""
_LEAST_SHARE = 0.2
"""Share of a measured time that is left at least when launches are subtracted."""

Link = Callable[[Tensor, int], Tensor]
"""One operator of a chain: its argument and its place, to its result."""


@dataclass(frozen=True)
class _Calls:
    """Calls of one operator that are timed together."""

    forward: Callable[[], Sequence[Tensor]]
    """Do all calls, and return what is differentiated."""
    inputs: Sequence[Tensor]
    """Tensors with gradients."""
    count: int
    launches: int = 1
    """Operators of a call."""


def _chain(start: Tensor, link: Link, count: int, parameters: Sequence[Tensor] = (), launches: int = 1) -> _Calls:
    """Return calls of which each takes the result of the one before."""

    def forward() -> Sequence[Tensor]:
        end = start
        for place in range(count):
            end = link(end, place)
        return (end,)

    return _Calls(forward, (start, *parameters), count, launches)


def measure_operators(rates: Rates) -> dict[str, OperatorSpeed]:
    """Return speeds of operators on the CPU by their key, with the launch times of `rates`. It takes some seconds."""
    keep_freed_memory()
    found: dict[str, OperatorSpeed] = {}
    for dtype in DTYPES:
        kind = getattr(torch, dtype)
        for name, link in _elementwise(kind).items():
            sizes = (*_SIZES, _FRESH) if name in _FRESH_ONES else _SIZES
            found[key_of(name, dtype)] = _by_bytes(name, link, kind, sizes, rates)
        found[key_of("aten.mm", dtype)] = _by_width(_WEIGHTS, _product, kind, rates)
        found[key_of("aten.bmm", dtype)] = _by_width(_DEPTHS, _attention, kind, rates)
        for depth in FLASH_DEPTHS:
            found[flash_key(depth, dtype)] = _by_width(_LENGTHS, partial(_flash, depth), kind, rates)
    found[MOVING] = found[key_of("aten.clone", "float32")]
    found[CALLING] = _calling()
    return found


def _elementwise(dtype: torch.dtype) -> dict[str, Link]:
    """Return operators whose result has the shape of their argument, `[rows, 256]`."""
    weight = torch.ones(_WIDTH, dtype=dtype, requires_grad=True)
    mask = torch.arange(_WIDTH) % 2 == 0
    other = torch.bfloat16 if dtype == torch.float32 else torch.float32

    def transposed(x: Tensor, place: int) -> Tensor:
        return x.view(-1, 16, 4, _WIDTH // 4).transpose(1, 2).contiguous().view(x.shape)

    return {
        "aten.add": lambda x, place: x + x,
        "aten.mul": lambda x, place: x * 0.5,
        "aten.masked_fill": lambda x, place: x.masked_fill(mask, 0.0),
        "aten._softmax": lambda x, place: x.softmax(-1),
        "aten._log_softmax": lambda x, place: x.log_softmax(-1),
        "aten.native_layer_norm": lambda x, place: F.layer_norm(x, (_WIDTH,), weight, weight),
        "aten._fused_rms_norm": lambda x, place: F.rms_norm(x, (_WIDTH,), weight),
        "aten.gelu": lambda x, place: F.gelu(x),
        "aten.silu": lambda x, place: F.silu(x),
        "aten.clone": transposed,
        _CAST: lambda x, place: x.to(other).to(dtype),
    }


def _by_bytes(name: str, link: Link, dtype: torch.dtype, sizes: Sequence[int], rates: Rates) -> OperatorSpeed:
    tensors, launches = 3 if name == "aten.add" else 2, 2 if name == _CAST else 1
    forward, backward = [], []
    for size in sizes:
        rows = 16 * max(1, size // (tensors * _WIDTH * dtype.itemsize) // 16)
        start = torch.randn(rows, _WIDTH).to(dtype).requires_grad_()
        moved = 2 * (2 + 4) * start.numel() if name == _CAST else tensors * start.nbytes
        chain = _chain(start, link, min(32, max(2, _CHAIN_BYTES // size)), launches=launches)
        ahead, back = _seconds(chain, rates)
        forward.append(moved / ahead)
        backward.append(2 * moved / back)
    return OperatorSpeed(at=tuple(sizes), forward=tuple(forward), backward=tuple(backward))


def _by_width(
    widths: Sequence[int],
    calls: Callable[[int, torch.dtype], tuple[_Calls, float, float]],
    dtype: torch.dtype,
    rates: Rates,
) -> OperatorSpeed:
    """Return FLOPs per second at some widths; `calls` also returns the FLOPs of a call in both directions."""
    forward, backward = [], []
    for width in widths:
        made, flops, flops_back = calls(width, dtype)
        ahead, back = _seconds(made, rates)
        forward.append(flops / ahead)
        backward.append(flops_back / back)
    return OperatorSpeed(at=tuple(widths), forward=tuple(forward), backward=tuple(backward))


def _product(width: int, dtype: torch.dtype) -> tuple[_Calls, float, float]:
    """Products with square weights, each its own."""
    weights = [torch.randn(width, width).to(dtype).requires_grad_() for _ in range(4)]
    start = torch.randn(_ROWS, width).to(dtype).requires_grad_()
    flops = 2.0 * _ROWS * width**2
    return _chain(start, lambda x, place: F.linear(x, weights[place]), len(weights), weights), flops, 2 * flops


def _attention(depth: int, dtype: torch.dtype) -> tuple[_Calls, float, float]:
    """The two products of attention in one link: `[heads, length, depth]` to scores and back."""
    start, keys, values = (torch.randn(_HEADS, _LENGTH, depth).to(dtype).requires_grad_() for _ in range(3))
    flops = 4.0 * _HEADS * _LENGTH**2 * depth
    chain = _chain(start, lambda x, place: (x @ keys.mT) @ values, 3, (keys, values), launches=2)
    return chain, flops, 2 * flops


def _flash(depth: int, length: int, dtype: torch.dtype) -> tuple[_Calls, float, float]:
    """Fused causal attention of four sequences, whose backward has two and a half times the FLOPs.

    Queries, keys and values are parts of one tensor, as in a model. Where rows lie far apart, some kernels are slower.
    """
    heads = _HEADS // 4
    joined = [torch.randn(4, length, 3 * heads * depth).to(dtype).requires_grad_() for _ in range(3)]
    flops = 4.0 * _HEADS * length**2 * depth

    def forward() -> Sequence[Tensor]:
        found = []
        for each in joined:
            queries, keys, values = (x.view(4, length, heads, depth).transpose(1, 2) for x in each.chunk(3, -1))
            found.append(F.scaled_dot_product_attention(queries, keys, values, is_causal=True))
        return found

    return _Calls(forward, joined, len(joined)), flops, 2.5 * flops


def _calling() -> OperatorSpeed:
    """Return the calls per second of modules on a few numbers."""
    kinds = (lambda: nn.LayerNorm(8), lambda: nn.Linear(8, 8), nn.GELU)
    modules = [kind() for _ in range(_MODULES) for kind in kinds]
    parameters = [one for module in modules for one in module.parameters()]
    start = torch.ones(2, 8, requires_grad=True)
    forward, backward = _timed(_chain(start, lambda x, place: modules[place](x), len(modules), parameters))
    return OperatorSpeed(at=(1.0,), forward=(1 / forward,), backward=(1 / backward,))


def _seconds(calls: _Calls, rates: Rates) -> tuple[float, float]:
    """Return the seconds of a call, forward and backward, without its launches."""
    forward, backward = _timed(calls)
    return (
        _without(forward, calls.launches * rates.launch_seconds),
        _without(backward, calls.launches * rates.backward_launch_seconds),
    )


def _timed(calls: _Calls) -> tuple[float, float]:
    """Return the seconds of a call, forward and backward."""
    backs: list[float] = []

    def trial() -> float:
        begun = time.perf_counter()
        ends = calls.forward()
        turned = time.perf_counter()
        torch.autograd.grad(ends, calls.inputs, [torch.ones_like(end) for end in ends])
        backs.append(time.perf_counter() - turned)
        return turned - begun

    ahead = repeat_trial(trial).seconds
    return ahead / calls.count, min(backs) / calls.count


def _without(seconds: float, launches: float) -> float:
    return max(seconds - launches, _LEAST_SHARE * seconds)
