"""A tape on which some weights are frozen: they get no gradient, and nothing is saved for one.

The rules are autograd's. An operation has a node only if one of its inputs depends on a trained weight. So nothing
below the first of these has a backward. A linear layer saves its input for the gradient of its weight alone, and its
weight for that of its input alone. So do the experts of a mixture. A norm composed of operators multiplies by its
weight last, and saves the factor for that weight's gradient alone. A norm that is a kernel of its own saves the same as
ever.
"""

from collections.abc import Collection

from assay.cost.layers import GROUPED, Tape, is_composed_norm
from assay.cost.operation import Flops, Gradient, Operation, alter

_PRODUCTS = ("aten.mm", "aten.addmm", "aten.bmm", GROUPED)
_LOSS_IN_CHUNKS = "aten.cross_entropy_loss"


def without_gradients_of_frozen(tape: Tape, trained: Collection[str]) -> Tape:
    """Return the tape with gradients of what leads to the `trained` weights only; a second time it changes nothing."""
    reached, kept = set(trained), []
    for operation in tape:
        pairs = zip(operation.inputs, operation.gradients, strict=True)
        gradients = tuple([how if name in reached else Gradient.NONE for name, how in pairs])
        if any(how is not Gradient.NONE for how in gradients):
            reached.update([one.name for one in operation.outputs])
            kept.append(_partly(operation, gradients) if Gradient.NONE in gradients else operation)
        else:
            kept.append(_without_backward(operation, gradients))
    return tuple(kept)


def _without_backward(operation: Operation, gradients: tuple[Gradient, ...]) -> Operation:
    work = Flops(operation.flops.forward, 0, 0 if not operation.flops.padding else _padding(operation, 0))
    scratch = operation.scratch._replace(backward=())
    return alter(operation, gradients=gradients, saves=(), number_bytes=0, flops=work, scratch=scratch)


def _partly(operation: Operation, gradients: tuple[Gradient, ...]) -> Operation:
    """The operation with fewer gradients, without what it saved for the others, and without their products."""
    unsaved: set[str] = set()
    flops, scratch = operation.flops, operation.scratch
    if operation.name in _PRODUCTS:
        factors, (by_x, by_weight) = operation.inputs[:2], gradients[:2]
        # Each factor's gradient is a product with the other.
        unsaved = {name for name, other in zip(factors, (by_weight, by_x), strict=True) if other is Gradient.NONE}
        back = flops.forward * sum(how is not Gradient.NONE for how in (by_x, by_weight))
        flops = Flops(flops.forward, back, _padding(operation, back))
    elif operation.name == _LOSS_IN_CHUNKS and gradients[1] is Gradient.NONE:
        flops = Flops(flops.forward, 2 * flops.forward, flops.padding)  # the logits anew, and the input's gradient
    elif is_composed_norm(operation) and gradients[1] is Gradient.NONE:
        factor = operation.extras[-1]
        unsaved = {factor.name}
        if factor.name in operation.saves:  # the square's derivative has as many tensors as before
            scratch = scratch.and_also(backward=(alter(factor, name=f"{factor.name} · gradient"),))
    saves = tuple([name for name in operation.saves if name not in unsaved])
    return alter(operation, gradients=gradients, saves=saves, flops=flops, scratch=scratch)


def _padding(operation: Operation, back: int) -> int:
    """Padding in proportion to the products that are left."""
    flops = operation.flops
    return flops.padding * (flops.forward + back) // ((flops.forward + flops.backward) or 1)
