"""Seconds of a kernel on a GPU, and of the host that launches it.

On the H200 they follow from the table of measured operators. Any other device moves bytes in proportion to its
bandwidth, and multiplies in proportion to its peak of that dtype, by both datasheets. A kernel takes as long to start
everywhere.

Fused attention is the exception. On an H200 it reaches a smaller share of the peak than on an A100, where it was
published to reach 50 to 73 % (arXiv:2307.08691). So on another device it takes no longer than the operators that it
replaces would. These are products of scores and of values, and one pass over the scores, as compiled code has them.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from math import log

from assay.hardware.devices import DEVICES
from assay.hardware.measured_kernels import (
    ATTENTION,
    BANDWIDTH,
    BATCHED,
    EMBEDDED,
    NARROWING,
    NORM,
    PLAIN,
    PRODUCT,
    START_SECONDS,
    WIDENING,
    Kernel,
    attention,
    between,
    embedding_seconds,
    is_aligned,
    moving_speeds,
    norms,
    products,
    rows,
    table,
)

MEASURED_ON = "h200"
"""Device of the table."""
_OPERATORS_OF_ADAMW = 8.5
"""Operators of the plain AdamW for each parameter, as counted in a trace."""


def _launch(key: str) -> float:
    return float(table()[key])


LAUNCH_SECONDS, BACKWARD_LAUNCH_SECONDS = _launch("launch_forward"), _launch("launch_backward")
"""Seconds of the host for one small operator in a long chain: recorded for backward, and its backward."""


def _update_launch() -> float:
    (plain,) = (one for one in rows() if one.operator == "adamw_plain")
    return plain.forward / plain.shape[0] / _OPERATORS_OF_ADAMW


UPDATE_LAUNCH_SECONDS = _update_launch()
"""Seconds of the host for one operator of an update: those of the plain AdamW, for which the device waits."""


PRODUCT_LAUNCH_SECONDS = min(one.forward for one in rows() if one.operator == PRODUCT)
"""Seconds of the host for one small product."""

COMPILED = table()["profiled_host_seconds"]["compiled"] / table()["profiled_host_seconds"]["eager"]
"""Seconds of the host for compiled code over those for the same step without a compiler, both under a profiler. It
launches fewer kernels, but checks its guards."""


class Speeds:
    """The speeds of a device, by its datasheet beside that of the measured one."""

    def __init__(self, name: str) -> None:
        here, there = DEVICES[name], DEVICES[MEASURED_ON]
        self.name = name
        self.measured = name == MEASURED_ON
        """True for the device on which the operators were measured."""
        self._moving = there.bandwidth_bytes / here.bandwidth_bytes
        self._multiplying: Mapping[str, float] = {
            dtype: there.flops[dtype] / rate for dtype, rate in here.flops.items() if dtype in there.flops
        }

    @property
    def dtypes(self) -> frozenset[str]:
        """Number formats of products whose time is known."""
        return frozenset(self._multiplying)

    def seconds(self, kernel: Kernel) -> float:
        """Seconds of a kernel. Raises `KeyError` if the device has no products of its dtype."""
        found = self._scaled(kernel)
        if self.measured or not kernel.kind.startswith(ATTENTION):
            return found
        return min(found, sum(map(self._scaled, _explicit(kernel))))

    def _scaled(self, kernel: Kernel) -> float:
        starting, moving, multiplying = _parts(kernel)
        factor = self._multiplying[kernel.dtype] if multiplying else 0.0
        return starting + moving * self._moving + multiplying * factor


@cache
def speeds_of(name: str) -> Speeds:
    """Return the speeds of a device of `DEVICES`."""
    return Speeds(name)


_PRODUCTS, _BACKWARD_PRODUCTS = (False, True), (True, True, True, True)
"""Products of explicit attention: whether each reads a square of scores, so that it has the speed of backward."""
_SOFTMAX, _BACKWARD_SOFTMAX = 2, 3
"""Scores that a softmax reads and writes, fused with its mask and scale."""


@lru_cache(maxsize=2**15)
def _explicit(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels that a fused attention replaces."""
    batch, heads, length, depth = kernel.shape
    count, width = batch * heads, 4 if kernel.dtype in ("float32", "tf32") else 2
    scores = count * length * length
    sides, flops = width * (scores + 2 * count * length * depth), 2.0 * scores * depth
    products = (
        Kernel(BATCHED, kernel.dtype, sides, flops, (count, length, depth), back)
        for back in (_BACKWARD_PRODUCTS if kernel.back else _PRODUCTS)
    )
    moved = width * scores * (_BACKWARD_SOFTMAX if kernel.back else _SOFTMAX)
    return (*products, Kernel(PLAIN, "float32" if width == 4 else kernel.dtype, moved))


@lru_cache(maxsize=2**15)
def _parts(kernel: Kernel) -> tuple[float, float, float]:
    """Seconds on the measured device in which a kernel starts, moves bytes and multiplies."""
    kind = kernel.kind
    if kind in (PRODUCT, BATCHED):
        return START_SECONDS, kernel.nbytes / BANDWIDTH, kernel.flops / _rate(kernel)
    if kind.startswith(ATTENTION):
        points = attention(kind.removeprefix(ATTENTION), kernel.dtype, kernel.back)
        batch, heads, length, _ = kernel.shape
        rate = between(points, (log(batch * heads), log(length)))
        return START_SECONDS, 0.0, kernel.flops / rate
    if kind == NORM:
        speed = between(norms(kernel.dtype, kernel.back), tuple(map(log, kernel.shape)))
        return START_SECONDS * (1 + kernel.back), kernel.nbytes / speed, 0.0
    if kind == EMBEDDED:
        return embedding_seconds(), kernel.nbytes / BANDWIDTH, 0.0
    return START_SECONDS, kernel.nbytes / _speed(kernel), 0.0


def _rate(kernel: Kernel) -> float:
    """FLOP/s of a product apart from its bytes."""
    aligned = is_aligned(kernel.shape) or kernel.dtype == "float32"
    if kernel.kind == BATCHED and kernel.dtype == "tf32":
        # Products of a batch were not measured in TF32, so they count as one product of all rows.
        count, length, depth = kernel.shape
        return between(products(PRODUCT, "tf32", False, aligned), tuple(map(log, (count * length, depth, length))))
    points = products(kernel.kind, kernel.dtype, kernel.back, aligned or kernel.kind == BATCHED)
    return between(points or products(kernel.kind, kernel.dtype, kernel.back, True), tuple(map(log, kernel.shape)))


def _speed(kernel: Kernel) -> float:
    """Bytes per second of a kernel that does not multiply."""
    place = (log(max(kernel.nbytes, 1.0)),)
    if kernel.kind in (WIDENING, NARROWING):
        return between(moving_speeds(kernel.kind, "", False), place)
    found = moving_speeds(kernel.kind, kernel.dtype, kernel.back) or moving_speeds(PLAIN, kernel.dtype, False)
    return between(found, place)
