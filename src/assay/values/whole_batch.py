"""Whether a loss of a user's own adds up over rows, if its step is cut into micro-batches.

The baseline program repeats the run's own micro-batches, so it has the run's loss whatever the cut does to it. Here one
step is computed in float64 both ways: cut as in the run, and as one forward of the whole batch. A mean over some of the
targets, pairs of rows and statistics of a batch differ between the two. Both are at the same weights, so the only other
difference is rounding. A loss may compute in float32 by itself, and the float32 baseline shows how exact that is.

Dropout draws other masks in each forward. If the step draws random numbers, modules are compared as in an evaluation,
except those that normalize by a batch. A loss that draws even then cannot be compared.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.values.baseline import Reference
from assay.values.computed import Computed
from assay.values.recorded import Recorded

_APART = 1e-5
"""Relative difference between losses, or gradients, from which they are not equal within rounding."""
_RATIO = 8.0
"""Multiple of the float32 baseline's own error that rounding explains."""
_REMEDY = "return (sum, count), or do not accumulate"


def whole_batch_failures(recorded: Recorded, run: ResolvedRun, base: Reference, truth: Reference) -> list[str]:
    """Return a sentence if the first recorded step has another loss or gradient as one forward of its whole batch.

    `base` and `truth` are the baseline program in float32 and in float64. Changes the random state.
    """
    step = recorded.first
    cut, whole = recorded.micro_batches(step), [recorded.batch(step)]
    if run.model.own is None or len(cut) == 1:
        return []
    weights, noise = recorded.tensors("weight", step), recorded.noise(step)
    buffers = recorded.tensors("training buffer", step)
    for dropout in (True, False):
        found = [
            reference.at(weights, batches, noise, dropout=dropout, batch_statistics=True, buffers=buffers)
            for reference, batches in ((base, whole), (truth, whole), (truth, cut))
        ]
        if not _drew(noise.states, truth.device):
            return _differences(step, len(cut), *found)
    return []


def _drew(noise: Mapping[str, Tensor], device: torch.device) -> bool:
    """True if random numbers were drawn since the generators had the states `noise`."""
    states = {"cpu": torch.get_rng_state()}
    if "cuda" in noise:
        states["cuda"] = torch.cuda.get_rng_state(device)
    return not all(torch.equal(state, noise[kind].to(state.device)) for kind, state in states.items())


def _differences(step: int, count: int, near: Computed, whole: Computed, cut: Computed) -> list[str]:
    least = max(_APART * abs(whole.loss), _RATIO * abs(near.loss - whole.loss))
    if not abs(cut.loss - whole.loss) <= least:
        what = f"it is {cut.loss:.6g} in {count} parts, and {whole.loss:.6g} as one batch"
    elif not _norm(cut, whole) <= max(_APART * _norm(whole), _RATIO * _norm(near, whole)):
        apart = _norm(cut, whole) / _norm(whole)
        what = f"its gradient in {count} parts is off that of one batch (relative difference {apart:.1e})"
    else:
        return []
    return [f"the loss does not add up over rows: in step {step} {what}; {_REMEDY}"]


def _norm(one: Computed, other: Computed | None = None) -> float:
    """Return the Euclidean norm of all gradients, or of their difference from those of `other`."""

    def squares(name: str, gradient: Tensor) -> float:
        difference = gradient.double() if other is None else gradient.double() - other.gradients[name].double()
        return float(difference.square().sum())

    return float(sum(squares(name, gradient) for name, gradient in one.gradients.items()) ** 0.5)
