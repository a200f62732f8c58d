"""The answer as plain data: stacks with time and memory, contributions of elements, and what the answer rests on.

A budget of memory without a device names no machine. Seconds of the machine at hand would say nothing of the one that
is meant. Stacks are then ranked by the arithmetic of a step, which is the same everywhere. So a second is a TFLOP of
any dtype, and memory traffic and launches are free.
"""

from dataclasses import dataclass
from math import inf
from typing import Any

from assay.config.run import ResolvedRun
from assay.cost.operation import DTYPE_BYTES
from assay.estimator.cost import Training
from assay.estimator.memory_fit import StepBatch
from assay.estimator.timing.step_time import spread_of
from assay.hardware import Machine, Rates
from assay.optimizations.optimization import Numerics

FLOPS = 1e12
"""FLOPs that count as a second."""


@dataclass(frozen=True)
class Choice:
    """A stack with its predicted time and need of memory."""

    stack: tuple[str, ...]
    """Techniques that are added to the configuration, as a user writes them."""
    seconds: float
    """Seconds of a step; TFLOPs if no device was named."""
    margin: float | None
    """Margin of the seconds (`step_time.spread_of`); None if the error of such a roofline was never measured."""
    timed: bool
    """True if steps of it were timed on this machine."""
    tokens: int
    """Tokens of a step."""
    need_bytes: int
    """Bytes of the memory that the budget limits."""
    numerics: Numerics
    batch: StepBatch
    fits: bool = True

    @property
    def title(self) -> str:
        """The stack as a user writes it, or ``nothing``."""
        return "+".join(self.stack) or "nothing"

    @property
    def spread(self) -> tuple[float, float] | None:
        """Factors between which the seconds lie; None if the error of such a prediction was never measured."""
        return None if self.margin is None else spread_of(self.margin)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all devices that are trained on in a second."""
        return self.tokens / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return {
            "optimizations": "+".join(self.stack),
            "tokens_per_second": self.tokens_per_second,
            "step_seconds": self.seconds,
            "step_seconds_margin": self.margin,
            "batch": self.batch.to_dict(),
            "timed": self.timed,
            "need_bytes": self.need_bytes,
            "fits": self.fits,
            "numerics": self.numerics.value,
        }


@dataclass(frozen=True)
class Part:
    """An element of the recommended stack, and the stack without it."""

    element: str
    without: Choice | None
    """None if the rest cannot run alone, because it requires the element."""
    loss: str
    """Whether it touches the loss, and by what evidence."""


@dataclass(frozen=True)
class Counts:
    """Sizes of a search."""

    candidates: int
    """Compatible stacks with their micro-batches."""
    idle: tuple[str, ...]
    """Elements that no prediction can favour; stacks with them are counted, and need no ledger."""
    measured: tuple[str, ...]
    """Elements of the recommended stack, and those that no prediction can favour, each with a measured gain."""
    unseen: tuple[str, ...]
    """Elements left out because their time is not predicted, each with what is missing."""
    unadvised: tuple[str, ...]
    """Elements left out because the configuration does not ask for them, each with the reason."""
    under_load: bool
    """True if other programs used the machine while stacks were timed."""
    refused: tuple[str, ...]
    """Lossy elements that the limit of the loss leaves out."""
    unearned: tuple[str, ...]
    """Elements that round the optimizer's state, are not needed to fit, and gain less time than the margin."""
    timed: int
    """Candidates that were timed on this machine."""
    replayed: int
    """Candidates whose whole ledger was computed."""


@dataclass(frozen=True)
class Advice:
    """Advice for a run within a budget of memory."""

    run: ResolvedRun
    configuration: str
    """The preset, file or folder that was asked about."""
    device: str
    """Name of the device; empty if none was named, so that steps have arithmetic and no times (`counting`)."""
    absent: bool
    """True for a device that is known by its datasheet only."""
    budget_bytes: int
    of: str
    baseline: Choice
    recommended: Choice
    frontier: tuple[Choice, ...]
    """The fastest stack that fits, and those that trade time for memory."""
    parts: tuple[Part, ...]
    different: tuple[Choice, ...]
    """The recommended stack with a technique that trains differently, one at a time."""
    counts: Counts
    warnings: tuple[str, ...]
    sources: tuple[str, ...]
    """Configuration, device and date of each measured change of the loss that the answer uses."""
    command: str
    checked: str
    """Words on what decided that the recommended stack fits; empty on this machine."""
    largest_batch: int | None
    """Most sequences of a step that fit with the recommended stack; None if they were not searched."""

    @property
    def ranked(self) -> tuple[Choice, ...]:
        """The recommended stack, then the frontier from the fastest on."""
        return (self.recommended, *self.frontier)

    @property
    def speed_unit(self) -> str:
        """Unit of `tokens_per_second`: tokens a second, or for each TFLOP if no device was named."""
        return "tokens/s" if self.device else "tokens/TFLOP"

    def training(self, tokens: float, price: float | None = None) -> Training:
        """Return the training of the recommended stack on so many tokens, at a price for an hour of the device."""
        best = self.recommended
        return Training(
            tokens=tokens, tokens_per_step=best.tokens, step_seconds=best.seconds, spread=best.spread, price=price
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values. If no device was named, stacks have FLOPs in place of times."""
        return {
            "device": self.device or None,
            "budget_bytes": self.budget_bytes,
            "of": self.of,
            "baseline": self.plain(self.baseline),
            "recommended": self.plain(self.recommended),
            "command": self.command,
            "checked": self.checked,
            "largest_batch": self.largest_batch,
            "frontier": [self.plain(one) for one in self.frontier],
            "parts": [
                {"element": one.element, "loss": one.loss, "without": one.without and self.plain(one.without)}
                for one in self.parts
            ],
            "different_training": [self.plain(one) for one in self.different],
            "candidates": self.counts.candidates,
            "timed": self.counts.timed,
            "replayed": self.counts.replayed,
            "refused": list(self.counts.refused),
            "unearned": list(self.counts.unearned),
            "unseen": list(self.counts.unseen),
            "unadvised": list(self.counts.unadvised),
            "warnings": list(self.warnings),
        }

    def plain(self, choice: Choice) -> dict[str, Any]:
        """Return the figures of a stack as plain values, with FLOPs in place of times if no device was named."""
        found = choice.to_dict()
        if not self.device:
            found |= dict.fromkeys(("tokens_per_second", "step_seconds", "step_seconds_margin"))
            found["step_flops"] = round(choice.seconds * FLOPS)
        return found


def counting(machine: Machine) -> Machine:
    """Return a machine with rates that count FLOPs, on its processor and on an accelerator."""
    rates = {
        kind: Rates(
            device=kind,
            matmul_flops=dict.fromkeys(DTYPE_BYTES, FLOPS),
            bandwidth_bytes=inf,
            launch_seconds=0.0,
            backward_launch_seconds=0.0,
            threads=1,
            torch="none",
        )
        for kind in ("cpu", "cuda")
    }
    return machine.model_copy(update={"rates": rates, "step_times": {}})
