"""The predicted time of a step from the operators that torch dispatched for it, whoever wrote the program.

Kernels are those of the same table as the ledger's (`hardware.kernel_seconds`), found by torch's own names and shapes.
An operator that is not named here moves the bytes of its tensors. Those whose FLOPs nobody measured withdraw the time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from assay.estimator.timing.gpu_step import MODULES, RECOMPUTED_SECONDS, WAIT, Queued
from assay.hardware.kernel_seconds import (
    BACKWARD_LAUNCH_SECONDS,
    LAUNCH_SECONDS,
    PRODUCT_LAUNCH_SECONDS,
    UPDATE_LAUNCH_SECONDS,
    Speeds,
)
from assay.hardware.measured_kernels import (
    ATTENTION,
    BATCHED,
    EMBEDDED,
    FUSED,
    LISTED,
    MIXED_ADD,
    NARROWING,
    NORM,
    PLAIN,
    PRODUCT,
    WIDENING,
    Kernel,
)

_HALF = ("bfloat16", "float16")
_READS = ("_local_scalar_dense", "nonzero", "_unique2")
_UNMEASURED = ("convolution", "_scaled_mm", "_grouped_mm", "_thnn_fused", "_cudnn_rnn", "_fft", "linalg_", "_flex")
"""Beginnings of operators that compute more than they move, and that nobody measured."""
_BACKWARD_OF_ATTENTION = 2.5


class Seen(NamedTuple):
    """A tensor on the device, as an operator had it."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int


class Call(NamedTuple):
    """One operator of torch."""

    name: str
    """Name without its namespace and overload: ``addmm``."""
    read: tuple[Seen, ...]
    written: tuple[Seen, ...]
    part: str
    """forward, backward, recompute or update."""
    tf32: bool = False
    """True if products of float32 may be in TF32."""


def untimed_operators(calls: Sequence[Call]) -> tuple[str, ...]:
    """Return the names of operators without a time."""
    return tuple(sorted({one.name for one in calls if one.name.startswith(_UNMEASURED)}))


def operator_launches(calls: Sequence[Call], speeds: Speeds) -> Iterator[Queued]:
    """Launches of operators. Raises `KeyError` if the device has no products of a dtype of them."""
    for one in calls:
        seconds = [speeds.seconds(_in_format(kernel, one.tf32)) for kernel in kernels(one)]
        yield Queued(_host(one), sum(seconds))
        if one.name in _READS:
            yield WAIT


def _in_format(kernel: Kernel, tf32: bool) -> Kernel:
    """The kernel of a product in TF32, if that is on."""
    multiplies = kernel.kind in (PRODUCT, BATCHED) and kernel.dtype == "float32"
    return kernel._replace(dtype="tf32") if tf32 and multiplies else kernel


def _host(call: Call) -> float:
    """Seconds of the host for an operator in a part of the step."""
    if call.part == "update":
        return PRODUCT_LAUNCH_SECONDS if call.name.endswith("mm") else UPDATE_LAUNCH_SECONDS
    if call.part == "backward":
        return MODULES * BACKWARD_LAUNCH_SECONDS
    return MODULES * LAUNCH_SECONDS + (RECOMPUTED_SECONDS if call.part == "recompute" else 0.0)


def kernels(call: Call) -> Iterator[Kernel]:
    """Kernels of an operator."""
    if call.name.startswith("_scaled_dot_product_"):
        yield _attention(call)
        return
    rule = _RULES.get(call.name)
    yield from (_plain(call) if rule is None else rule(call))


def _dtype(call: Call) -> str:
    return (call.written or call.read)[0].dtype


def _moved(call: Call) -> int:
    return sum(one.nbytes for one in (*call.read, *call.written))


def _plain(call: Call) -> Iterator[Kernel]:
    if call.name.startswith("_fused_"):
        yield Kernel(FUSED, "float32", _moved(call))
    elif call.name.startswith("_foreach_"):
        yield Kernel(LISTED, "float32", _moved(call))
    else:
        yield Kernel(PLAIN, _dtype(call), _moved(call))


def _product(call: Call) -> Iterator[Kernel]:
    """A product of two matrices. Backward's have the layer's shape: tokens are the side that is summed or kept."""
    left, right = call.read[-2:]
    rows, inner = left.shape
    columns = right.shape[-1]
    back = call.part == "backward"
    shape = (rows, inner, columns)
    if back:
        shape = (inner, columns, rows) if inner == max(shape) else (rows, columns, inner)
    sides = left.nbytes + right.nbytes + call.written[0].nbytes
    yield Kernel(PRODUCT, left.dtype, sides, 2.0 * rows * inner * columns, shape, back)


def _batched(call: Call) -> Iterator[Kernel]:
    left, right = call.read[-2:]
    count, rows, inner = left.shape
    columns = right.shape[-1]
    small, _, large = sorted((rows, inner, columns))
    # Products that write a square of scores are those of forward; the others read it.
    back = call.part == "backward" or inner > min(rows, columns)
    sides = left.nbytes + right.nbytes + call.written[0].nbytes
    yield Kernel(BATCHED, left.dtype, sides, 2.0 * count * rows * inner * columns, (count, large, small), back)


def _attention(call: Call) -> Kernel:
    back = call.name.endswith("backward")
    q = call.read[1 if back else 0]
    kind = next((one for one in ("efficient", "cudnn") if one in call.name), "flash")
    batch, heads, length, depth = q.shape
    flops = 4.0 * batch * heads * length**2 * depth * (_BACKWARD_OF_ATTENTION if back else 1.0)
    return Kernel(ATTENTION + kind, q.dtype, 0.0, flops, (batch, heads, length, depth), back)


def _norm(passes: int, *, back: bool = False) -> Callable[[Call], Iterator[Kernel]]:
    def rule(call: Call) -> Iterator[Kernel]:
        x = call.read[0]
        yield Kernel(NORM, x.dtype, passes * x.nbytes, 0.0, (prod(x.shape[:-1]), x.shape[-1]), back)

    return rule


def _rows(kind: str, passes: int, *, back: bool = False) -> Callable[[Call], Iterator[Kernel]]:
    def rule(call: Call) -> Iterator[Kernel]:
        yield Kernel(kind, _dtype(call), passes * call.written[0].nbytes, back=back)

    return rule


def _masked(call: Call) -> Iterator[Kernel]:
    yield Kernel("masked_fill", _dtype(call), 2 * call.written[0].nbytes, back=call.part == "backward")


def _copied(call: Call) -> Iterator[Kernel]:
    """A cast, or a copy; one that leaves the device or comes to it moves the bytes that are here."""
    before, after = (call.read or call.written)[-1], (call.written or call.read)[0]
    if before.dtype == after.dtype:
        yield Kernel(PLAIN, after.dtype, before.nbytes + after.nbytes)
    else:
        kind = WIDENING if before.dtype in _HALF and after.dtype not in _HALF else NARROWING
        yield Kernel(kind, after.dtype, before.nbytes + after.nbytes)


def _sum(call: Call) -> Iterator[Kernel]:
    mixed = len({one.dtype for one in call.read}) > 1 and _dtype(call) == "float32"
    yield Kernel(MIXED_ADD if mixed else PLAIN, _dtype(call), _moved(call))


def _named(kind: str) -> Callable[[Call], Iterator[Kernel]]:
    def rule(call: Call) -> Iterator[Kernel]:
        yield Kernel(kind, _dtype(call), _moved(call))

    return rule


def _written(call: Call) -> Iterator[Kernel]:
    yield Kernel(PLAIN, _dtype(call), sum(one.nbytes for one in call.written))


def _nothing(call: Call) -> Iterator[Kernel]:
    return iter(())


def _embedding(call: Call) -> Iterator[Kernel]:
    yield Kernel(PLAIN, _dtype(call), 2 * call.written[0].nbytes)


_RULES: Mapping[str, Callable[[Call], Iterator[Kernel]]] = {
    **dict.fromkeys(("mm", "addmm"), _product),
    **dict.fromkeys(("bmm", "baddbmm"), _batched),
    "native_layer_norm": _norm(2),
    "native_layer_norm_backward": _norm(5, back=True),
    "_fused_rms_norm": _norm(2),
    "_fused_rms_norm_backward": _norm(5, back=True),
    **dict.fromkeys(("_softmax", "_safe_softmax"), _rows("softmax", 2)),
    "_softmax_backward_data": _rows("softmax", 6, back=True),
    "_log_softmax": _rows("cross_entropy", 2),
    "_log_softmax_backward_data": _rows("cross_entropy", 3, back=True),
    "nll_loss_forward": _nothing,
    "nll_loss_backward": _rows("cross_entropy", 1, back=True),
    **dict.fromkeys(("masked_fill", "masked_fill_"), _masked),
    "native_dropout": _named("dropout"),
    **dict.fromkeys(("gelu", "silu"), _named("gelu")),
    **dict.fromkeys(("_to_copy", "copy_", "clone"), _copied),
    **dict.fromkeys(("add", "add_"), _sum),
    "embedding": _embedding,
    "embedding_dense_backward": _named(EMBEDDED),
    **dict.fromkeys(("fill_", "zero_", "ones_like", "zeros_like", "zeros", "ones", "full", "full_like"), _written),
    **dict.fromkeys(("empty", "empty_like", "empty_strided", "new_empty", "_local_scalar_dense"), _nothing),
}
