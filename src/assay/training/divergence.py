"""Name the first tensor that is not finite, when a step's loss or gradient norm, or an evaluation's loss, is not.

The plain update leaves weights and gradients unchanged in such a step, so the step's own state can be searched. The
weights that it began with are first, in the model's order. Then the outputs of its modules are watched in a second
forward and backward (with fresh dropout noise). Its gradients are last, from the output backwards, which is the order
in which they were computed. An evaluation is repeated and watched like that second forward.

Each rank searches its own shards. The search must not call a collective: the other ranks would wait for ever. The
second forward and backward is the whole gradients seam, on every rank, whether or not the rank has found a tensor
already. Then the ranks agree on the first.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.parallel.dtensor import local
from assay.parallel.process_rank import ALONE, Ranks
from assay.step.compiled import run_eagerly
from assay.step.graphs import without_replays
from assay.step.program import MicroBatch, Step
from assay.training.evaluation import Evaluation
from assay.units import format_steps

_FIRST = "is the first tensor that is not finite"
_WEIGHT, _OUTPUT, _LOSS, _GRADIENT = range(4)
"""Kinds of tensors, in the order in which a step uses or computes them."""
_Found = tuple[int, int, str]
"""(kind, position among the tensors of that kind on its rank, name)."""


def first_not_finite(step: Step, micro_batches: Sequence[MicroBatch], ranks: Ranks = ALONE) -> str | None:
    """Return a name such as "the output of blocks.2.mlp", or None if every tensor that can be searched is finite.

    The result is the same on every rank; all must call it.
    """
    tokens = sum(targets.numel() for _, targets in micro_batches) * step.program.parallel.share[1]
    return first_not_finite_in(step, lambda: step.program.gradients(step, micro_batches, tokens).item(), ranks)


def first_not_finite_in(step: Step, again: Callable[[], float], ranks: Ranks = ALONE) -> str | None:
    """Like `first_not_finite`, with the module outputs of `again`, which runs forwards and returns their loss."""
    gradient = _first_gradient(step)
    output = _first_output(step, again)
    own = _first_weight(step) or output or gradient or _first_gradient(step)  # an update may have cleared it
    everyone: list[tuple[int, int, int, str]] = []
    for rank, said in enumerate(ranks.gather(json.dumps(own))):
        if found := json.loads(said):
            what, position, name = found
            stage = ranks.layout.at(rank)["pp"]
            # Later stages have later layers, and gradients are computed from the output backwards.
            everyone.append((what, -stage if what == _GRADIENT else stage, position, name))
    return min(everyone)[-1] if everyone else None


def diverged_step(step: Step, micro_batches: Sequence[MicroBatch], ranks: Ranks, index: int, last: int) -> str:
    """Describe the divergence of the step `index`; `last` is the last step before the read.

    Steps in between spread the values that are not finite.
    """
    found = first_not_finite(step, micro_batches, ranks)
    what = f"{found} {_FIRST}" if found else "the loss or its gradient is not finite"
    late = f", read after step {last}: by then" if last > index else ":"
    return f"diverged at step {index}{late} {what}"


def diverged_evaluation(
    step: Step, again: Callable[[], Evaluation], ranks: Ranks, known: Evaluation, updated_by: int | None
) -> str:
    """Describe the divergence of an evaluation, which `again` repeats; the step `updated_by` made the last update.

    That update can make weights not finite without its step showing it.
    """
    found = first_not_finite_in(step, lambda: again().loss, ranks)
    after = "" if updated_by is None else f" after the update of step {updated_by}"
    what = f": {found} {_FIRST}{after}" if found else ""
    return f"the validation loss after {format_steps(known.step)} is {known.loss}{what}"


def gradients_remain(step: Step) -> bool:
    """True if the update left gradients in place: a skipped one (loss scaling) clears them, a diverged one does not."""
    return any(parameter.grad is not None for _, parameter in step.named_parameters())


def _first_weight(step: Step) -> _Found | None:
    for position, (name, parameter) in enumerate(step.named_parameters()):
        if not _finite(parameter):
            return _WEIGHT, position, f"the weight {name}"
    return None


def _first_gradient(step: Step) -> _Found | None:
    for position, (name, parameter) in enumerate(reversed(step.named_parameters())):
        if parameter.grad is not None and not _finite(parameter.grad):
            return _GRADIENT, position, f"the gradient of {name}"
    return None


def _first_output(step: Step, again: Callable[[], float]) -> _Found | None:
    with _watched_outputs(step) as outputs, run_eagerly(step.program), without_replays(step.program):
        loss = again()
    for position, (name, finite) in enumerate(outputs):
        if not finite:
            return _OUTPUT, position, f"the output of {name}"
    return None if math.isfinite(loss) else (_LOSS, 0, "the loss")


@contextmanager
def _watched_outputs(step: Step) -> Iterator[list[tuple[str, bool]]]:
    """Collect the names of this rank's modules as they return, and whether their outputs are finite."""
    outputs: list[tuple[str, bool]] = []

    def watch(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                outputs.append((name, _finite(output)))

        return note

    modules = [(name, module) for part in step.parts for name, module in part.named_modules() if name]
    handles = [module.register_forward_hook(watch(name)) for name, module in modules]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _finite(tensor: Tensor) -> bool:
    """True if every value of this rank's shard is finite."""
    return bool(torch.isfinite(local(tensor.detach())).all())
