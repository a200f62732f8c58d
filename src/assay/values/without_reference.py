"""Checks that need no reference program: replicas, masks, learning rates, options and gradient norms.

Each function yields sentences on what is wrong with a record; none if it is right.
"""

import math
from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.reference.expected import Expected
from assay.values.nearness import unit_roundoff
from assay.values.rate_rule import rate_fault
from assay.values.recorded import Recorded

_NORM_ERROR, _SUMMED_ERROR = 2e-4, 1e-2
"""Largest relative errors of a norm: of small tensors, and of long sums. Rounding of clipped gradients is added."""
_DEVIATIONS = 5


def plain_failures(recorded: Recorded, run: ResolvedRun, expected: Expected) -> list[str]:
    """Return the sentences of all checks."""
    return list(
        chain(
            _replicas(recorded),
            _noises(recorded, run),
            _masks(recorded, run),
            _options(recorded, expected),
            _rates(recorded, run, expected),
            _norms(recorded, run),
        )
    )


def _replicas(recorded: Recorded) -> Iterator[str]:
    for kind in ("gradient", "weight"):
        for step in range(recorded.first, recorded.first + len(recorded.steps) + 1):
            for name in recorded.differing_replicas(kind, step)[:1]:
                yield f"the replicas of the {kind} of {name} differ in step {step}"
            for name, largest in recorded.tensors(f"{kind} padding", step).items():
                if float(largest) != 0.0:
                    yield f"rows of {name} that stand for no token are not zero in step {step} ({kind})"


def _noises(recorded: Recorded, run: ResolvedRun) -> Iterator[str]:
    """Ranks of one place draw the same dropout masks; all others draw unlike ones."""
    for step in recorded.steps if run.model.dropout > 0 else ():
        for one, other, same in recorded.noise_pairs(step.index):
            if same is not (one.place == other.place):
                drawn = "the same dropout masks" if same else "different dropout masks"
                yield f"ranks {one.rank} and {other.rank} draw {drawn} in step {step.index}"
                return


def _masks(recorded: Recorded, run: ResolvedRun) -> Iterator[str]:
    """Masks that were kept drop the share that the run asks for, up to five standard deviations and a kernel's own."""
    p = run.model.dropout
    for one in recorded.mask_counts():
        off = abs(one.zeros - one.due(p))
        if not one.elements or off > _DEVIATIONS * math.sqrt(one.elements * p * (1 - p)):
            share = one.zeros / one.elements if one.elements else 0.0
            yield f"dropout zeroed {share:.4f} of {one.elements} elements instead of {p:g} in step {one.step}"
            return


def _options(recorded: Recorded, expected: Expected) -> Iterator[str]:
    """Yield a sentence on a group whose betas, momentum or decay are not the rule's."""
    weights = recorded.tensors("weight", recorded.first)
    for step in recorded.steps:
        for name, options in step.groups.items():
            for option, wanted in expected.rule.options(name, weights[name]).items():
                if options.get(option, wanted) != wanted:
                    yield f"{option} of {name} is {options[option]} in step {step.index}; the update rule has {wanted}"
                    return


def _rates(recorded: Recorded, run: ResolvedRun, expected: Expected) -> Iterator[str]:
    for step in recorded.steps:
        own = {name: options["lr"] for name, options in step.groups.items() if "lr" in options}
        used = {step.rate, *(one / expected.rule.rate_factor(name) for name, one in own.items())}
        faults = (rate_fault(run.training, expected.rate_factor, step.index, one) for one in used)
        yield from filter(None, faults)


def _norms(recorded: Recorded, run: ResolvedRun) -> Iterator[str]:
    """Compare the norm of each step's gradients at the optimizer with the reported norm, after clipping.

    A step without an update must have gradients that are not finite.
    """
    clip = run.training.gradient_clip
    for step in recorded.steps:
        gradients = list(recorded.tensors("gradient", step.index).values())
        if not step.updated:
            if math.isfinite(step.log_norm):
                yield f"step {step.index} made no update, although its gradients were finite"
            continue
        squares, fourth = _sums(gradients)
        found = squares**0.5
        norm = math.exp(step.log_norm)
        clipped = 0 < clip < norm
        wanted = clip * norm / (norm + 1e-6) if clipped else norm
        # A CPU rounds the factor of clipping to the gradients' dtype before it multiplies, and a GPU does not.
        also = norm * _rounded(wanted / norm, gradients) if clipped else wanted
        # On a CPU torch adds up the squares of a tensor in some 16 running sums of float32.
        summed = min(_SUMMED_ERROR, max(one.numel() for one in gradients) / 8 * unit_roundoff(torch.float32))
        allowed = (_NORM_ERROR + summed + 3 * fourth**0.5 / max(squares, 1e-300)) * wanted
        if min(abs(found - wanted), abs(found - also)) > allowed:
            yield (
                f"the optimizer receives gradients of norm {found:.6g} in step {step.index}, and "
                f"{wanted:.6g} follows from the reported norm"
            )


def _sums(gradients: list[Tensor]) -> tuple[float, float]:
    """Return the sum of all squares of gradients, and the variance of that sum if each element is rounded.

    Clipped gradients are rounded, and independent errors of the elements add up.
    """
    total = variance = 0.0
    for one in gradients:
        squares = one.double().square()
        total += float(squares.sum())
        variance += unit_roundoff(one.dtype) ** 2 * float(torch.dot(squares.flatten(), squares.flatten()))
    return total, variance


def _rounded(factor: float, gradients: list[Tensor]) -> float:
    """Return a factor as gradients of one dtype are multiplied by it; unchanged if they have several."""
    kinds = {one.dtype for one in gradients}
    return float(torch.tensor(factor, dtype=torch.float64).to(kinds.pop())) if len(kinds) == 1 else factor
