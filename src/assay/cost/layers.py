"""Torch's layers on a tape: what each saves for backward, and what its backward allocates (eager, CPU kernels).

Read off torch's derivative formulas; the tests compare them to the byte with saved-tensor hooks. Where a CUDA kernel
saves something else, the caller passes its dtype: dropout's mask is one byte an element there (`noise_dtype`).
"""

from collections.abc import Sequence
from math import prod

from assay.config import ModelConfig
from assay.cost.operation import Flops, Gradient, Operation, Scratch
from assay.cost.tape import Writer
from assay.cost.tensor import Tensor, alter

FRESH, ALIAS, INPLACE, NONE = Gradient.FRESH, Gradient.ALIAS, Gradient.INPLACE, Gradient.NONE
CONVERTED, TRANSPOSED, VIEWED = Gradient.CONVERTED, Gradient.TRANSPOSED, Gradient.VIEWED
INSIDE, OVERWRITING = Gradient.INSIDE, Gradient.OVERWRITING

GROUPED = "aten._grouped_mm"
"""Product of each group of rows and a matrix of its own."""
RMS_NORM, _COMPOSED, _NORMALIZED = "aten._fused_rms_norm", "PowBackward", "normalized"


def linear(
    tape: Writer, x: Tensor, weight: Tensor, bias: Tensor | None, autocast: str = "", holds: Sequence[Tensor] = ()
) -> Tensor:
    """Linear layer, `[…, in] → […, out]`; saves its input, and its weight if that is a copy.

    Rows are multiplied with the transposed weight, so both gradients are returned as views.
    """
    wide, narrow = weight.shape
    out = tape.made("out", (*x.shape[:-1], wide), x.dtype)
    flops = 2 * prod(x.shape[:-1]) * wide * narrow
    inputs = (x, weight) if bias is None else (x, weight, bias)
    tape.write(
        "aten.mm" if bias is None else "aten.addmm",
        "contraction",
        inputs,
        (out,),
        (VIEWED, VIEWED, INPLACE)[: len(inputs)],
        saves=(x, weight),
        holds=holds,
        flops=Flops(flops, 2 * flops),
        backward="MmBackward" if bias is None else "AddmmBackward",
        autocast=autocast,
    )
    return out


def norm(tape: Writer, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """LayerNorm over the last dimension, with or without `bias`; saves its input, mean and reciprocal deviation."""
    out = tape.made("out", x.shape, x.dtype)
    statistics = tuple(tape.made(label, (*x.shape[:-1], 1), "float32") for label in ("mean", "rstd"))
    inputs = (x, weight) if bias is None else (x, weight, bias)
    tape.write(
        "aten.native_layer_norm",
        "normalization",
        inputs,
        (out,),
        (FRESH, INPLACE, INPLACE)[: len(inputs)],
        saves=(x, *statistics),
        extras=statistics,
        backward="NativeLayerNormBackward",
    )
    return out


def rms_norm(tape: Writer, x: Tensor, weight: Tensor, *, fused: bool) -> Tensor:
    """RMSNorm, composed on torch's CPU; saves its input, the reciprocal deviation and the normalized input.

    Its backward peaks in the derivative of the square: five tensors like the input, after the deviation has been freed.
    A `fused` one is a kernel of its own, which saves no normalized input.
    """
    out = tape.made("out", x.shape, x.dtype)
    deviation = tape.made("rstd", (*x.shape[:-1], 1), "float32")
    extras: tuple[Tensor, ...] = (deviation,)
    backward, scratch = "FusedRmsNormBackward", Scratch()
    if not fused:
        extras, backward = (deviation, tape.made(_NORMALIZED, x.shape, "float32")), _COMPOSED
        scratch = _of_the_square(x)
    tape.write(
        RMS_NORM,
        "normalization",
        (x, weight),
        (out,),
        (FRESH, INPLACE),
        saves=(x, *extras),
        extras=extras,
        backward=backward,
        scratch=scratch,
    )
    return out


def composed_norm(norm: Operation, x: Tensor) -> Operation:
    """Return an RMS norm of `x` that is a kernel of its own as torch composes it where that kernel cannot be had."""
    (deviation,) = norm.extras
    normalized = alter(x, name=f"{norm.site}:{_NORMALIZED}", dtype="float32", view_of=None)
    return alter(
        norm,
        saves=(*norm.saves, normalized.name),
        extras=(deviation, normalized),
        backward=_COMPOSED,
        scratch=_of_the_square(x),
    )


def _of_the_square(x: Tensor) -> Scratch:
    return Scratch(backward=(x, alter(x, shape=(*x.shape[:-1], x.shape[-1] - 1))))


def is_composed_norm(operation: Operation) -> bool:
    """True for an RMS norm that is no kernel of its own."""
    return operation.name == RMS_NORM and operation.backward == _COMPOSED


def softmax(tape: Writer, x: Tensor, name: str = "aten._softmax", *, product: bool) -> Tensor:
    """Softmax over the last dimension; saves its result.

    With `product` its backward multiplies that and its gradient into a temporary.
    """
    out = tape.made("probabilities", x.shape, x.dtype)
    inside = (alter(out, name=f"{out.name} · gradient"),) if product else ()
    tape.write(
        name,
        "normalization",
        (x,),
        (out,),
        (FRESH,),
        saves=(out,),
        backward="SafeSoftmaxBackward" if "safe" in name else "SoftmaxBackward",
        scratch=Scratch(backward=inside),
    )
    return out


def elementwise(tape: Writer, name: str, x: Tensor, *, backward: str) -> Tensor:
    """Activation function; saves its input."""
    out = tape.made(name.rpartition(".")[2], x.shape, x.dtype)
    tape.write(name, "elementwise", (x,), (out,), (FRESH,), saves=(x,), backward=backward)
    return out


def activation(tape: Writer, x: Tensor, config: ModelConfig) -> Tensor:
    """The nonlinearity of an MLP that is not gated."""
    if config.activation == "squared_relu":
        return squared_relu(tape, x)
    return elementwise(tape, "aten.gelu", x, backward="GeluBackward")


def squared_relu(tape: Writer, x: Tensor) -> Tensor:
    """Square of a ReLU, as a product; saves the ReLU's result, and its caller holds the input."""
    before = len(tape.operations)
    positive = tape.made("relu", x.shape, x.dtype)
    tape.write("aten.relu", "elementwise", (x,), (positive,), (FRESH,), saves=(positive,), backward="ReluBackward")
    out = product(tape, positive, positive)
    tape.operations[before:] = [alter(one, holds=(x.name,)) for one in tape.operations[before:]]
    return out


def scale(tape: Writer, x: Tensor, number_bytes: int = 0) -> Tensor:
    """Product with a number; saves no tensor, except the number if torch wraps it."""
    out = tape.made("scaled", x.shape, x.dtype)
    tape.write("aten.mul", "elementwise", (x,), (out,), (FRESH,), backward="MulBackward")
    tape.operations[-1] = alter(tape.operations[-1], number_bytes=number_bytes)
    return out


def soft_cap(tape: Writer, logits: Tensor, number_bytes: int, holds: Sequence[Tensor]) -> Tensor:
    """Logits within ±c: their part of c, its tanh, and c times that; saves the tanh."""
    before = len(tape.operations)
    parts = scale(tape, logits, number_bytes)
    bent = tape.made("tanh", parts.shape, parts.dtype)
    tape.write("aten.tanh", "elementwise", (parts,), (bent,), (FRESH,), saves=(bent,), backward="TanhBackward")
    capped = scale(tape, bent, number_bytes)
    held = tuple(one.name for one in holds)
    tape.operations[before:] = [alter(one, holds=held) for one in tape.operations[before:]]
    return capped


def product(tape: Writer, x: Tensor, y: Tensor) -> Tensor:
    """Product `x · y`, both with gradients; saves both."""
    out = tape.made("product", x.shape, x.dtype)
    tape.write("aten.mul", "elementwise", (x, y), (out,), (FRESH, FRESH), saves=(x, y), backward="MulBackward")
    return out


def table_product(tape: Writer, x: Tensor, table: Tensor) -> Tensor:
    """Product of `x` and a constant table; saves the table."""
    out = tape.made("turned", x.shape, x.dtype)
    tape.write("aten.mul", "elementwise", (x, table), (out,), (FRESH, NONE), saves=(table,), backward="MulBackward")
    return out


def add(tape: Writer, x: Tensor, y: Tensor) -> Tensor:
    """Residual sum; saves nothing, and passes its gradient on to both inputs."""
    out = tape.made("sum", x.shape, "float32" if "float32" in (x.dtype, y.dtype) else x.dtype)
    tape.write("aten.add", "elementwise", (x, y), (out,), (ALIAS, ALIAS), backward="AddBackward")
    return out


def dropout(
    tape: Writer, x: Tensor, probability: float, noise_dtype: str | None, holds: Sequence[Tensor] = ()
) -> Tensor:
    """Dropout; saves its noise in the input's dtype, or in `noise_dtype` where a fused kernel saves a mask instead."""
    if probability == 0.0:
        return x
    out = tape.made("dropped", x.shape, x.dtype)
    noise = tape.made("noise", x.shape, noise_dtype or x.dtype)
    tape.write(
        "aten.mul",
        "elementwise",
        (x,),
        (out,),
        (FRESH,),
        saves=(noise,),
        extras=(noise,),
        holds=holds,
        backward="MulBackward",
    )
    return out


def view(tape: Writer, x: Tensor, label: str, shape: tuple[int, ...]) -> Tensor:
    """View of the same storage under another shape."""
    out = tape.made(label, shape, x.dtype, batched=x.batched, of=x.name)
    tape.write("aten.view", "movement", (x,), (out,), (ALIAS,), backward="ViewBackward")
    return out


def copy(tape: Writer, x: Tensor, label: str, shape: tuple[int, ...]) -> Tensor:
    """Contiguous copy under another shape, whose gradient is returned as a view."""
    out = tape.made(label, shape, x.dtype)
    tape.write("aten.clone", "movement", (x,), (out,), (ALIAS,), backward="CloneBackward")
    return out
