"""The forward pass as data: a tuple of operations, and torch's layers, which a writer appends to it.

`cost.gpt_tape` writes the baseline's tape, the `predict` of optimizations rewrites it, and `cost.simulation` plays it
forwards and backwards to count live bytes. It holds shapes and names only, so rewriting a tape is list editing.

A layer says what it saves for backward, and what its backward allocates (eager, CPU kernels). That is read off torch's
derivative formulas; the tests compare it to the byte with saved-tensor hooks. Where a CUDA kernel saves something else,
the caller passes its dtype: dropout's mask is one byte an element there (`noise_dtype`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod

from assay.config import ModelConfig
from assay.cost.operation import BLANK, Collectives, Flops, Gradient, Operation, Scratch, Tensor, alter

Tape = tuple[Operation, ...]

_BLANK = Operation(name="", site="", kind="", inputs=(), outputs=(), gradients=())
"""An operation that is altered to each new one, because that takes half the time of making one."""


class Writer:
    """Appends operations to a tape and gives each result a unique name."""

    def __init__(self, site: str, values: dict[str, Tensor]) -> None:
        self.site = site
        self.values = values
        """Every tensor that may be read, by name: parameters, the batch, and the results so far."""
        self.operations: list[Operation] = []

    def at(self, site: str) -> "Writer":
        """A writer for a module inside this one, which appends to the same tape."""
        inner = Writer(f"{self.site}.{site}" if self.site else site, self.values)
        inner.operations = self.operations
        return inner

    def made(
        self, label: str, shape: Sequence[int], dtype: str, *, batched: bool = True, of: str | None = None
    ) -> Tensor:
        """Make a new tensor named after the site; `of` makes it a view."""
        name = f"{self.site}:{label}"
        while name in self.values:
            name += "'"
        tensor = alter(BLANK, name=name, shape=tuple(shape), dtype=dtype, batched=batched, view_of=of)
        self.values[name] = tensor
        return tensor

    def write(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        gradients: Sequence[Gradient],
        *,
        saves: Sequence[Tensor] = (),
        extras: Sequence[Tensor] = (),
        holds: Sequence[Tensor] = (),
        flops: Flops = Flops(),
        backward: str = "",
        scratch: Scratch = Scratch(),
        autocast: str = "",
        counts: bool = False,
        collectives: Collectives = Collectives(),
    ) -> None:
        """Append an operation."""
        self.operations.append(
            alter(
                _BLANK,
                name=name,
                site=self.site,
                kind=kind,
                inputs=tuple([tensor.name for tensor in inputs]),
                outputs=tuple(outputs),
                gradients=tuple(gradients),
                saves=tuple([tensor.name for tensor in saves]),
                extras=tuple(extras),
                holds=tuple([tensor.name for tensor in holds]),
                flops=flops,
                backward=backward,
                scratch=scratch,
                autocast=autocast,
                counts=counts,
                collectives=collectives,
            )
        )


class Repeatable:
    """Operations of a module, from which equal modules are made under other names."""

    def __init__(self, operations: Sequence[Operation], site: str) -> None:
        self._operations = operations
        names = {name: name for one in operations for name in _names(one)}
        self._outside = {name: name for name in names if not name.startswith(site)}
        self._inside = {name: name[len(site) :] for name in names if name.startswith(site)}
        """Ends of the names that begin with the module's site."""

    def names(self, site: str, given: Mapping[str, str]) -> dict[str, str]:
        """New names by old ones for the module at another site; some are given."""
        return {**self._outside, **{old: site + rest for old, rest in self._inside.items()}, **given}

    def under(self, names: Mapping[str, str]) -> list[Operation]:
        """The operations under new names, without communications."""
        tensor = partial(rename, names=names)
        return [_renamed(one, names.__getitem__, tensor) for one in self._operations]


def _names(one: Operation) -> Iterator[str]:
    yield from (one.site, *one.inputs, *one.saves, *one.holds)
    for tensor in one.own.values():
        yield tensor.name
        if tensor.view_of is not None:
            yield tensor.view_of


def _renamed(one: Operation, name: Callable[[str], str], tensor: Callable[[Tensor], Tensor]) -> Operation:
    return alter(
        one,
        site=name(one.site),
        inputs=tuple(map(name, one.inputs)),
        outputs=tuple(map(tensor, one.outputs)),
        saves=tuple(map(name, one.saves)),
        extras=tuple(map(tensor, one.extras)),
        holds=tuple(map(name, one.holds)),
        scratch=one.scratch.changed(tensor),
    )


def rename(tensor: Tensor, names: Mapping[str, str]) -> Tensor:
    """The tensor under its new name."""
    if tensor.view_of is None:
        return alter(tensor, name=names[tensor.name])
    return alter(tensor, name=names[tensor.name], view_of=names[tensor.view_of])


def replace_site(tape: Tape, inside: Callable[[str], bool], rewrite: Callable[[Tape], Tape]) -> Tape:
    """Replace each maximal run of operations at one site that satisfies `inside` by `rewrite` of it."""
    result: list[Operation] = []
    run: list[Operation] = []
    for operation in tape:
        if inside(operation.site) and (not run or run[-1].site == operation.site):
            run.append(operation)
            continue
        if run:
            result.extend(rewrite(tuple(run)))
            run = []
        if inside(operation.site):
            run.append(operation)
        else:
            result.append(operation)
    if run:
        result.extend(rewrite(tuple(run)))
    return tuple(result)


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
