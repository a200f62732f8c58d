"""The predicted time of a step: from steps of the same model with few blocks if they were timed, else by a roofline.

`assay estimate --calibrate`, comparisons and studies time such steps (`launch.step_times`). They are kept under a
digest of every setting on which the time of a step depends, except the number of blocks. So a study over depths, rates
or seeds shares them.

An extrapolation over depth is only allowed if the ledger agrees that the work is affine in it: FLOPs, parameters and
operations of the whole step must be those that the small depths extrapolate to.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import exp

from assay.config import ResolvedRun, Spec
from assay.cost import Cost, executed_flops
from assay.hardware import Machine
from assay.hardware.step_times import StepTimes, depths

WIDE = 0.4
"""Margin from which an interval is a factor up and down."""


def spread_of(margin: float) -> tuple[float, float]:
    """Return the factors between which a time lies that has a margin."""
    return (exp(-margin), exp(margin)) if margin > WIDE else (1 - margin, 1 + margin)


@dataclass(frozen=True)
class StepTime:
    """Seconds of one optimizer step."""

    seconds: float
    margin: float | None = None
    """Half of the interval relative to the seconds: of 95 %, if steps were timed, or what predictions by kernels were
    within. None for a roofline."""
    factor: float | None = None
    """Up to how many times as long or as short as its roofline a step is, in 95 % of measured cases.

    None for timed steps, and if no such roofline was held against measured steps."""
    under_load: bool = False
    """True if other programs used the machine while steps were timed."""
    apart: tuple[float, float] | None = None
    """Seconds of the host and of its accelerator, which work at the same time; None on a CPU and for a roofline."""
    factors: tuple[float, float] | None = None
    """Factors between which it lies, where no margin is known: of a roofline of a datasheet's peaks, or of a plan."""

    @property
    def spread(self) -> tuple[float, float] | None:
        """Factors between which the time of a step lies; None if errors of such predictions were never measured."""
        if self.margin is not None:
            return spread_of(self.margin)
        if self.factor is not None:
            return 1 / self.factor, self.factor
        return self.factors


def digest(run: ResolvedRun, device: str) -> str | None:
    """Return 16 hexadecimal digits of the settings on which the time of a step depends; None for several ranks."""
    return None if run.ranks > 1 else digests(run, device)(run.optimizations)


def digests(run: ResolvedRun, device: str) -> Callable[[Iterable[Spec]], str]:
    """Return the function that yields the digest of a run with other techniques, which leave its batch whole.

    Its stacks are in the order of application, with every field. It takes microseconds for each.
    """
    training = run.training
    decides = {
        "model": run.model.model_dump(mode="json", exclude={"n_layer", "init_from"}),
        "batch": run.sequences_per_step,
        "clips": training.gradient_clip > 0,
        "decays": training.weight_decay > 0,
        "device": device,
        "cores": run.cores,
    }
    # The key of the techniques is the last one in order, so the text of all others is a prefix.
    before = hashlib.sha256(json.dumps(decides, sort_keys=True)[:-1].encode() + b', "optimizations": [')

    def of(stack: Iterable[Spec]) -> str:
        whole = before.copy()
        texts = (json.dumps(one.model_dump(mode="json"), sort_keys=True) for one in stack)
        whole.update(f"{', '.join(texts)}]}}".encode())
        return whole.hexdigest()[:16]

    return of


def at_depth(run: ResolvedRun, layers: int) -> ResolvedRun:
    """Return the run with another number of blocks."""
    return run.model_copy(update={"model": run.model.model_copy(update={"n_layer": layers})})


def serving_times(run: ResolvedRun, machine: Machine) -> StepTimes | None:
    """Return the step times that serve a run; None if there are none."""
    found = machine.step_times.get(digest(run, machine.device(run.device)) or "")
    return found if found is not None and found.serves(run.model.n_layer) else None


def from_times(times: StepTimes, layers: int) -> StepTime:
    """Return the time of a step with so many blocks."""
    apart = times.apart(layers)
    return StepTime(times.seconds(layers), times.margin(layers), under_load=times.under_load, apart=apart)


def affine(whole: Cost, small: tuple[Cost, ...], layers: int) -> bool:
    """True if the ledger of a step is what those of the small depths extrapolate to."""
    if len(small) == 1:
        return True
    shallow, deep = map(_work, small)
    at = depths(layers)
    steps = (layers - at[0]) / (at[1] - at[0])
    return all(
        less + steps * (more - less) == found for less, more, found in zip(shallow, deep, _work(whole), strict=True)
    )


def _work(cost: Cost) -> tuple[int, int, int]:
    flops = sum(executed_flops(cost).values())
    return flops, len(cost.tape), sum(one.nbytes for one in cost.pieces.values())
