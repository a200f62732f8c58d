"""Low precision on a tape: the casts that torch's autocast inserts, or weights and activations that are all in 16 bits.

Contractions get their inputs in the low dtype, except a router's. An activation is cast at each use. A parameter is
cast once per forward, and that copy lives until the forward's context exits. A module that casts by itself keeps its
copy only as long as it needs it. The loss is cast back to float32. A CUDA device widens softmax and norms, too, but it
casts the log-probabilities only after it has computed them in the low dtype. Every other operation computes in the
widest dtype of its inputs.

In 16 bits throughout there are no copies, and no casts except one before the loss. Some values stay in float32. The
loss is one: a sum over a batch's tokens has no digits left in bfloat16 and overflows float16. Others are the
intermediate results of an RMS norm and the row sums of fused attention. Torch's unfused attention is all in float32,
and its result is cast back. Statistics of norms are float32 on a CUDA device; on a CPU they have the dtype of the
norm's input.
"""

from collections.abc import Iterator
from dataclasses import replace

from assay.cost.attention_tape import FLASH, MATH, returned_in, with_kernel
from assay.cost.layers import RMS_NORM, composed_norm, is_composed_norm
from assay.cost.operation import Gradient, Operation, Tensor, alter
from assay.cost.step_cost import Cost

LIFTED = {"aten._log_softmax", "aten.nll_loss_forward"}
"""Operations of the loss, which a CPU computes in float32 whatever the low dtype."""
_EXACT = {"bool", "int32", "int64"}
_LIFTED_ON_CUDA = {"aten._softmax", "aten.nll_loss_forward", "aten.native_layer_norm"}


def autocast(cost: Cost, dtype: str) -> Cost:
    """The ledger of the step under autocast to `dtype`."""
    caster = _Caster(cost, dtype)
    for operation in cost.tape:
        caster.add(operation)
    tables = tuple(caster.values[table.name] for table in cost.tables)
    return replace(cost, tape=tuple(caster.tape), tables=tables)


def composed_in_float32(operation: Operation, x: Tensor) -> tuple[Operation, Operation, Operation]:
    """An RMS norm of a narrow input `x`: it computes in float32, between two casts."""
    (out,) = operation.outputs
    lifted, wide = (f"{operation.site}:{label}" for label in ("lifted", "wide"))
    copy = alter(x, name=lifted, dtype="float32", view_of=None)
    holds = (*operation.holds, x.name)
    result = alter(out, name=wide, dtype="float32")
    norm = alter(operation.reading({x.name: lifted}), outputs=(result,), holds=holds)
    return cast_for(operation, x.name, copy), norm, alter(cast_for(operation, wide, out), holds=holds)


def cast_for(reader: Operation, name: str, copy: Tensor) -> Operation:
    """The cast of `name` to the dtype of `copy`, at the site of its reader."""
    return Operation(
        name="aten._to_copy",
        site=reader.site,
        kind="movement",
        inputs=(name,),
        outputs=(copy,),
        gradients=(Gradient.FRESH,),
        backward="ToCopyBackward",
    )


class _Caster:
    """Walks the tape and follows dtypes."""

    def __init__(self, cost: Cost, dtype: str) -> None:
        self.cost, self.dtype = cost, dtype
        self.lifted = _LIFTED_ON_CUDA if cost.kernels.softmax_autocast else LIFTED
        if cost.kernels.rms_norm_autocast:
            self.lifted = self.lifted | {RMS_NORM}
        self.values = dict(cost.values)
        self.made = {tensor.name for operation in cost.tape for tensor in operation.outputs}
        """Names of activations, which end with their last reader; parameters and tables outlast a step."""
        self.copies: dict[str, str] = {}
        """Name of each parameter's copy in the low dtype."""
        self.casts: dict[str, str] = {}
        """Name of each activation's latest copy in another dtype."""
        self.tape: list[Operation] = []

    def add(self, operation: Operation) -> None:
        """Append the operation with its inputs cast, and its results in the dtype that follows."""
        if operation.backend == MATH:
            self.tape.append(returned_in(self.dtype, operation))
            self.values[operation.outputs[0].name] = self.tape[-1].outputs[0]
        elif operation.name == "aten._softmax" and self._widens_inside():
            self._finish(operation, "float32")
        elif operation.autocast == "float32" or operation.name in self.lifted:
            self._finish(self._with_inputs(operation, "float32"), "float32")
        elif operation.autocast == "low" or operation.kind == "contraction":
            self._finish(self._with_inputs(operation, self.dtype), self.dtype)
        else:
            dtype = self._widest(operation)
            self._follow_tables(operation, dtype)
            self._finish(operation, dtype)

    def _widens_inside(self) -> bool:
        """True if softmax itself makes float32 of narrow inputs: CUDA's kernel does so for float16 alone.

        Source: torch 2.11, `aten/src/ATen/native/SoftMax.cpp`, `softmax` with a dtype.
        """
        return self.dtype == "float16" and self.cost.kernels.softmax_autocast is not None

    def _with_inputs(self, operation: Operation, dtype: str) -> Operation:
        """The operation with its inputs cast to `dtype`.

        Torch's own operators cast the last argument first, because their compiled calls evaluate it first. A module
        that casts in Python casts the first argument first.
        """
        renamed: dict[str, str] = {}
        gradients = list(operation.gradients)
        in_python = operation.opaque or operation.autocast == "low"
        places = list(enumerate(operation.inputs))
        for position, name in places if in_python else reversed(places):
            value = self.values[name]
            if not value.dtype.startswith(("float", "bfloat")) or value.dtype == dtype:
                continue
            if name in self.cost.parameters:
                if operation.kind == "contraction":
                    renamed[name] = self._copy_of_parameter(operation, value, dtype, gradients[position])
                    gradients[position] = Gradient.FRESH
            else:
                how = Gradient.NONE if gradients[position] is Gradient.NONE else Gradient.FRESH
                renamed[name] = self._cast(operation, value, dtype, held=False, how=how)
        # The caller holds an argument until the call returns, and a function that widens its arguments their copies.
        given = (name for name in renamed if name in self.made)
        copies = [self.casts[name] for name in operation.holds if name in self.casts] if dtype == "float32" else []
        held = (name for name in copies if self.values[name].dtype == dtype)
        return alter(
            operation.reading(renamed),
            holds=(*operation.holds, *given, *held),
            gradients=tuple(gradients),
        )

    def _copy_of_parameter(self, operation: Operation, parameter: Tensor, dtype: str, how: Gradient) -> str:
        if parameter.name not in self.copies:
            # Torch caches copies of what is trained only.
            cached = operation.autocast == "" and parameter.name not in self.cost.backward.frozen
            # A cast keeps the order of elements.
            kept = how if how is Gradient.TRANSPOSED else Gradient.INPLACE
            name = self._cast(operation, parameter, dtype, held=cached, how=kept)
            self.copies[parameter.name] = name
        return self.copies[parameter.name]

    def _cast(self, operation: Operation, value: Tensor, dtype: str, *, held: bool, how: Gradient) -> str:
        name = f"{operation.site}:{dtype} of {value.name}"
        while name in self.values:
            name += "'"
        cast = alter(value, name=name, dtype=dtype, view_of=None, held=held)
        self.values[name] = cast
        self.casts[value.name] = name
        self.tape.append(alter(cast_for(operation, value.name, cast), gradients=(how,)))
        return name

    def _widest(self, operation: Operation) -> str:
        """dtype of the results: float32 if any activation read is float32, or none is read; else the low dtype."""
        read = [self.values[name] for name in operation.inputs if name not in self.cost.parameters] or [
            self.values[name] for name in operation.inputs
        ]
        activations = [value for value in read if value.batched and value.dtype not in _EXACT]
        dtypes = {value.dtype for value in activations} or {"float32"}
        return "float32" if "float32" in dtypes else self.dtype

    def _follow_tables(self, operation: Operation, dtype: str) -> None:
        """Give rotary tables the dtype of the tensor that they rotate, in which they are made."""
        for name in operation.inputs:
            value = self.values[name]
            if value in self.cost.tables and value.dtype == "float32":
                self.values[name] = value.cast(dtype)

    def _finish(self, operation: Operation, dtype: str) -> None:
        if operation.backend:
            operation = with_kernel(operation, dtype, self.cost.kernels)
        if operation.name == RMS_NORM and dtype != "float32":
            if not is_composed_norm(operation):  # a kernel of its own wants input and weight of one dtype
                operation = composed_norm(operation, self.values[operation.inputs[0]].cast("float32"))
            *before, operation = composed_in_float32(operation, self.values[operation.inputs[0]])
            self.values.update({tensor.name: tensor for one in before for tensor in (*one.outputs, *one.extras)})
            self.tape.extend(before)
        elif operation.kind == "elementwise":
            extras = tuple(extra if extra.dtype == "bool" else extra.cast(dtype) for extra in operation.extras)
            operation = self._with_lifted(alter(operation, extras=extras), dtype)
        elif operation.autocast == "low":
            operation = alter(
                operation,
                scratch=operation.scratch.changed(lambda one: one.cast(dtype)),
            )
        outputs = tuple(self._result(output, dtype) for output in operation.outputs)
        self.values.update({tensor.name: tensor for tensor in (*outputs, *operation.extras)})
        self.tape.append(alter(operation, outputs=outputs))

    def _with_lifted(self, operation: Operation, dtype: str) -> Operation:
        """The operation with wide copies of narrow arguments: a product or a sum makes them; a sum on CUDA does not."""
        factors, summands = (
            tuple(self.values[name] for name in self._handed(operation, how) if self._is_narrow(name, dtype))
            for how in (Gradient.CONVERTED, Gradient.ALIAS)
        )
        lifted = factors if self.cost.kernels.softmax_autocast else (*factors, *summands)
        wide = (alter(one.cast(dtype), name=f"{operation.site}:{dtype} of {one.name}") for one in lifted)
        return alter(operation, scratch=operation.scratch.and_also(wide))

    def _handed(self, operation: Operation, how: Gradient) -> Iterator[str]:
        return (name for name, one in zip(operation.inputs, operation.gradients, strict=True) if one is how)

    def _is_narrow(self, name: str, dtype: str) -> bool:
        return self.values[name].dtype not in (*_EXACT, dtype)

    def _result(self, output: Tensor, dtype: str) -> Tensor:
        # The summed loss is a scalar, and in float32 whichever operation makes it.
        return output if output.dtype in _EXACT or not output.shape else output.cast(dtype)


_WIDE_EXTRAS = {FLASH}
_WIDE_EXTRAS_ON_CUDA = {"aten.native_layer_norm", RMS_NORM}


def narrow_ledger(cost: Cost, dtype: str) -> Cost:
    """The ledger of the step with every weight, gradient, moment and activation in `dtype`."""

    def cast(tensor: Tensor) -> Tensor:
        return tensor.cast(dtype) if tensor.dtype == "float32" else tensor

    wide_extras = _WIDE_EXTRAS | (_WIDE_EXTRAS_ON_CUDA if cost.kernels.softmax_autocast else set())
    tape: list[Operation] = []
    wide: dict[str, str] = {}
    """Values that are float32, or their float32 copies, by the name under which they are read."""
    lifted: dict[str, str] = {}
    """Likewise for operations with `autocast="float32"`, after which values are cast back to 16 bits."""
    for operation in cost.tape:
        if operation.backend == MATH:
            tape.append(returned_in(dtype, operation))
            continue
        if operation.autocast == "float32" or _follows(operation, lifted):
            copies = _copies(operation, cost, lifted)
            held = (lifted[name] for name in operation.holds if name in lifted)
            tape.extend((*copies, alter(operation.reading(lifted), holds=(*operation.holds, *held))))
            lifted.update({one.name: one.name for one in operation.outputs})
            continue
        if not lifted.keys().isdisjoint(operation.inputs):
            operation, casts = _cast_back(operation, cost, lifted, dtype)
            tape.extend(casts)
        if operation.name in LIFTED:
            tape.extend(_copies(operation, cost, wide))
        if operation.name in LIFTED or not wide.keys().isdisjoint(operation.inputs):
            holds = tuple(wide.get(name, name) for name in operation.holds)
            tape.append(alter(operation.reading(wide), holds=holds))
            wide.update({one.name: one.name for one in (*operation.outputs, *operation.extras)})
        else:
            tape.extend(_narrow(operation, cost, dtype, extras_too=operation.name not in wide_extras))
    return replace(
        cost,
        tape=tuple(tape),
        parameters={name: cast(tensor) for name, tensor in cost.parameters.items()},
        pieces={name: cast(tensor) for name, tensor in cost.pieces.items()},
        tables=tuple(map(cast, cost.tables)),
    )


def _follows(operation: Operation, lifted: dict[str, str]) -> bool:
    """True for a view of a lifted value, unless the value is cast back here."""
    return operation.name == "aten.view" and operation.autocast != "low" and operation.inputs[0] in lifted


def _copies(operation: Operation, cost: Cost, wide: dict[str, str]) -> list[Operation]:
    """Casts to float32 of the 16-bit values that a float32 operation reads."""
    made = []
    for name in operation.inputs:
        value = cost.values[name]
        if name in wide or value.dtype != "float32":
            continue
        copy = alter(value, name=f"{operation.site}:float32 of {name}", view_of=None)
        wide[name] = copy.name
        made.append(cast_for(operation, name, copy))
    return made


def _cast_back(
    operation: Operation, cost: Cost, lifted: dict[str, str], dtype: str
) -> tuple[Operation, list[Operation]]:
    """The operation on 16 bits, and the casts of its float32 inputs."""
    narrow = {
        name: replace(cost.values[name], name=f"{operation.site}:{dtype} of {name}", dtype=dtype, view_of=None)
        for name in dict.fromkeys(operation.inputs)
        if lifted.get(name) == name
    }
    casts = [cast_for(operation, name, copy) for name, copy in narrow.items()]
    return operation.reading({name: copy.name for name, copy in narrow.items()}), casts


def _narrow(operation: Operation, cost: Cost, dtype: str, *, extras_too: bool) -> tuple[Operation, ...]:
    def narrower(one: Tensor) -> Tensor:
        return one.cast(dtype) if one.dtype == "float32" else one

    narrow = alter(operation, outputs=tuple(map(narrower, operation.outputs)))
    if operation.backend:
        return (with_kernel(narrow, dtype, cost.kernels),)
    if is_composed_norm(operation):
        return composed_in_float32(narrow, cost.values[operation.inputs[0]])
    extras = map(narrower, operation.extras) if extras_too else operation.extras
    return (alter(narrow, extras=tuple(extras), scratch=operation.scratch.changed(narrower)),)
