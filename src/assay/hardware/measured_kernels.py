"""The operators that were measured on an H200, as points of speed.

The table (`h200_kernels.json`) has seconds. A product starts, moves its bytes and multiplies, so
t = START + bytes / BANDWIDTH + FLOPs / r. The rate r of each row is what remains of its seconds, and that of fused
attention leaves out the bytes. Other operators have a speed at which they move bytes. Rows in which the device waited
for the host are left out, because they say nothing about the device.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from math import exp, log, prod
from typing import Any, NamedTuple

PRODUCT, BATCHED = "linear", "bmm_qk"
"""Products of a layer, `shape` = (tokens, in, out), and of a batch, (batch, length, depth)."""
ALIGNED = 8
"""Multiple of numbers that products of 16 bits and TF32 need to be fast."""
PLAIN = "mul"
"""Kernel that reads and writes tensors in the order of their memory; those that are not in the table count as it."""
WIDENING, NARROWING = "cast bfloat16", "cast float32"
"""Casts from 16 bits to float32, which is slower, and back."""
MIXED_ADD = "add_profiled"
"""Sum of a float32 and a 16-bit tensor."""
EMBEDDED = "embedding"
"""Backward of an embedding."""
ATTENTION, NORM = "attention ", "layer_norm"
"""Fused attention, with its kernel's name behind it, `shape` = (batch, heads, length, depth); norms, (rows, width)."""
LISTED, FUSED = "adamw_foreach", "adamw_fused"
"""Kernels over a list of tensors, and the fused update of one."""


class Kernel(NamedTuple):
    """Work that the host launches at once."""

    kind: str
    """Name of its rows in the table of measured operators."""
    dtype: str
    """dtype in which it computes; `tf32` for products of float32 in that format."""
    nbytes: float
    """Bytes that it reads and writes."""
    flops: float = 0.0
    """FLOPs of products; a multiply-add counts two."""
    shape: tuple[int, ...] = ()
    """Shape by which products, attention and norms are found in the table."""
    back: bool = False
    """True in backward, where it was measured apart."""


START_SECONDS = 2.4e-6
"""Seconds of a kernel that does nothing: where the line through the seconds of `mul` in float32 by bytes begins."""
BANDWIDTH = 4.07e12
"""Bytes per second read and written by a large `mul` in float32; the line's slope."""
_HOST_BOUND = 1.6
"""A forward below so many times the shortest of its operator is the host's time."""
_HOST_BACKWARD = 1.3e-4
"""Seconds of the host for the backward of one operator: shorter ones do not show the device. Small operators, all of
which launch the same kernels, take 0.7e-4 to 1.5e-4."""
_NEAR = 1e-3
"""Squared distance below which points count as equal."""
_PASSES = {"layer_norm": (2, 5), "softmax": (2, 6), "masked_fill": (2, 2), "cross_entropy": (2, 4)}
"""Reads and writes of a tensor in forward and in backward, by operator. A softmax's backward multiplies first. That of
a cross-entropy fills a tensor with the gradient of its logarithms."""
_UPDATES = {FUSED: 7, LISTED: 21}
"""Reads and writes of each parameter by AdamW over lists."""
_MIXED = {"cast": 6, MIXED_ADD: 10}
"""Bytes of a number in all tensors together, of operators on two dtypes."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class SpeedPoint(NamedTuple):
    """A speed at a place: logarithms of the shape, or of the bytes moved."""

    place: tuple[float, ...]
    speed: float
    """FLOPs or bytes per second."""


class MeasuredOperator(NamedTuple):
    """One measured operator."""

    operator: str
    shape: tuple[int, ...]
    dtype: str
    forward: float
    backward: float | None


Points = Sequence[SpeedPoint]


@cache
def table() -> dict[str, Any]:
    """The whole file."""
    text = resources.files(__package__).joinpath("h200_kernels.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@cache
def rows() -> tuple[MeasuredOperator, ...]:
    """Every measured operator."""
    return tuple(MeasuredOperator(name, tuple(shape), dtype, f, b) for name, shape, dtype, f, b in table()["rows"])


def between(points: Points, place: tuple[float, ...]) -> float:
    """Return the speed at a place: the mean of the logarithms of all, weighted by the inverse squared distance."""
    weighed = total = 0.0
    for point in points:
        distance = sum((one - other) ** 2 for one, other in zip(point.place, place, strict=True))
        weight = 1.0 / (distance + _NEAR)
        weighed += weight * log(point.speed)
        total += weight
    return exp(weighed / total)


@cache
def products(kind: str, dtype: str, back: bool, aligned: bool) -> Points:
    """Rates of products in FLOP/s by shape. Both 16-bit formats have the faster one's; float32 needs no alignment."""
    operator = f"{kind}_tf32" if dtype == "tf32" and kind == PRODUCT else kind
    formats = ("float32",) if dtype in ("float32", "tf32") else ("bfloat16", "float16")
    chosen = [one for one in rows() if one.operator == operator and one.dtype in formats]
    fastest: dict[tuple[int, ...], MeasuredOperator] = {}
    for one in chosen:
        other = fastest.get(one.shape, one)
        both = min(one.backward or 0.0, other.backward or 0.0)
        fastest[one.shape] = one._replace(forward=min(one.forward, other.forward), backward=both)
    least = _HOST_BOUND * min(one.forward for one in chosen)
    of_device = [one for one in fastest.values() if one.forward >= least]
    alike = [one for one in of_device if dtype == "float32" or is_aligned(one.shape) == aligned]
    found = ((one.shape, _rate(kind, one, back)) for one in alike)
    return tuple(SpeedPoint(tuple(map(log, shape)), rate) for shape, rate in found if rate is not None)


def is_aligned(shape: tuple[int, ...]) -> bool:
    """True if products of such sides are fast in 16 bits and in TF32."""
    return all(one % ALIGNED == 0 for one in shape)


def _rate(kind: str, one: MeasuredOperator, back: bool) -> float | None:
    """FLOP/s of each of the products of a row, without the time of their bytes; None if the host was slower."""
    times = 2 if back else 1
    seconds = one.backward if back else one.forward
    if seconds is None or (back and seconds < _HOST_BACKWARD):
        return None
    count, inner, outer = one.shape
    if kind == PRODUCT:
        flops, sides = 2 * count * inner * outer, count * inner + inner * outer + count * outer
    else:
        flops, sides = 2 * count * inner**2 * outer, count * (inner**2 + 2 * inner * outer)
    left = seconds - times * (START_SECONDS + _BYTES[one.dtype] * sides / BANDWIDTH)
    return times * flops / left if left > 0 else None


@cache
def attention(kernel: str, dtype: str, back: bool) -> Points:
    """Rates of fused attention by batch · heads and length, in FLOP/s of a whole square of scores.

    In float32 only the memory-efficient kernel was measured, in 16 bits all three.
    """
    named = "sdpa" if dtype == "float32" else kernel
    kept = "float32" if dtype == "float32" else "bfloat16"
    found = [one for one in rows() if one.operator == named and one.dtype == kept]
    return tuple(SpeedPoint(_place(one.shape), _attended(one, back)) for one in found)


def _attended(one: MeasuredOperator, back: bool) -> float:
    count, heads, length, depth = one.shape
    flops = 4 * count * heads * length**2 * depth * (2.5 if back else 1.0)
    assert one.backward is not None
    return flops / ((one.backward if back else one.forward) - START_SECONDS)


def _place(shape: tuple[int, ...]) -> tuple[float, ...]:
    return log(shape[0] * shape[1]), log(shape[2])


@cache
def norms(dtype: str, back: bool) -> Points:
    """Speeds of layer norms by rows and width, in bytes per second; backward is two kernels, of float32 only."""
    kept = "float32" if dtype == "float32" or back else "bfloat16"
    chosen = [one for one in rows() if one.operator == "layer_norm" and one.dtype == kept]
    least = min(one.forward for one in chosen)
    found = [one for one in chosen if one.forward >= _HOST_BOUND * least]
    found += [one for one in rows() if one.operator == "layer_norm_profiled" and one.dtype == kept]
    return tuple(SpeedPoint(tuple(map(log, one.shape)), _normed(one, back)) for one in found if not back or _shows(one))


def _shows(one: MeasuredOperator) -> bool:
    """True if a norm's backward was longer than the host's, or was seen in a profile."""
    return one.backward is not None and (one.operator != "layer_norm" or one.backward >= 0.9 * _HOST_BACKWARD)


def _normed(one: MeasuredOperator, back: bool) -> float:
    seconds = one.backward if back else one.forward
    assert seconds is not None
    return _PASSES["layer_norm"][back] * _BYTES[one.dtype] * prod(one.shape) / (seconds - (1 + back) * START_SECONDS)


@cache
def embedding_seconds() -> float:
    """Seconds of an embedding's backward without the bytes that it moves: it sorts the tokens first."""
    found = [one for one in rows() if one.operator == "embedding" and one.backward is not None]
    bare = [(one.backward or 0.0) - 4.0 * one.shape[1] * (one.shape[0] + one.shape[2]) / BANDWIDTH for one in found]
    return sum(bare) / len(bare)


@cache
def moving_speeds(kind: str, dtype: str, back: bool) -> Points:
    """Speeds of other operators by the bytes that they move; empty if the operator was not measured so."""
    return tuple(_moved(kind, dtype, back))


def _moved(kind: str, dtype: str, back: bool) -> Iterator[SpeedPoint]:
    operator, _, source = kind.partition(" ")
    if kind in _UPDATES:
        yield from _updates(kind)
        return
    kept = source or ("float32" if dtype == "float32" else "bfloat16")
    chosen = [one for one in rows() if one.operator == operator and one.dtype == kept]
    least = min((one.forward for one in chosen), default=0.0)
    for one in chosen:
        seconds = one.backward if back else one.forward
        hidden = one.forward < _HOST_BOUND * least and operator != MIXED_ADD
        if seconds is None or hidden or (back and seconds < _HOST_BACKWARD):
            continue
        nbytes = _bytes_of(operator, one, back)
        yield SpeedPoint((log(nbytes),), nbytes / (seconds - START_SECONDS))


def _updates(kind: str) -> Iterator[SpeedPoint]:
    for one in rows():
        if one.operator == kind:
            nbytes = 4.0 * one.shape[1] * _UPDATES[kind]
            yield SpeedPoint((log(nbytes),), nbytes / one.forward)


def _bytes_of(operator: str, one: MeasuredOperator, back: bool) -> float:
    """Bytes that a measured operator reads and writes."""
    numbers = prod(one.shape)
    if operator in _MIXED:
        return _MIXED[operator] * numbers
    passes = _PASSES.get(operator, (2, 2))[back]
    noise = numbers if operator == "dropout" else 0
    return passes * _BYTES[one.dtype] * numbers + noise
