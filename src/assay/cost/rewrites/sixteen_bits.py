"""A tape whose weights and activations are all in 16 bits: no copies, and no casts except one before the loss.

Some values stay in float32. The loss is one: a sum over a batch's tokens has no digits left in bfloat16 and overflows
float16. Others are the intermediate results of an RMS norm and the row sums of fused attention. Torch's unfused
attention is all in float32, and its result is cast back. Statistics of norms are float32 on a CUDA device; on a CPU
they have the dtype of the norm's input.
"""

from dataclasses import replace

from assay.cost.attention_tape import FLASH, MATH, returned_in, with_kernel
from assay.cost.layers import RMS_NORM, is_composed_norm
from assay.cost.operation import Operation, Tensor, alter
from assay.cost.rewrites.autocast import LIFTED, cast_for, composed_in_float32
from assay.cost.step_cost import Cost

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
