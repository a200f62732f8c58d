"""The answer as plain data: stacks with time and memory, contributions of elements, and what the answer rests on."""

from dataclasses import dataclass
from typing import Any

from assay.config.run import ResolvedRun
from assay.optimizations.base import Numerics


@dataclass(frozen=True)
class Choice:
    """A stack with its predicted time and need of memory."""

    stack: tuple[str, ...]
    """Techniques that are added to the configuration, as a user writes them."""
    seconds: float
    """Seconds of a step."""
    margin: float | None
    """Half of the 95 % interval of the seconds' logarithm; None if the error of such a roofline was never measured."""
    timed: bool
    """True if steps of it were timed on this machine."""
    tokens: int
    """Tokens of a step."""
    need_bytes: int
    """Bytes of the memory that the budget limits."""
    numerics: Numerics
    fits: bool = True

    @property
    def title(self) -> str:
        """The stack as a user writes it, or ``nothing``."""
        return "+".join(self.stack) or "nothing"

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
    unseen: tuple[str, ...]
    """Elements left out because their time is not predicted, each with what is missing."""
    unadvised: tuple[str, ...]
    """Elements left out because the configuration does not ask for them, each with the reason."""
    under_load: bool
    """True if other programs used the machine while stacks were timed."""
    refused: tuple[str, ...]
    """Lossy elements that the limit of the loss leaves out."""
    timed: int
    """Candidates that were timed on this machine."""
    replayed: int
    """Candidates whose whole ledger was computed."""


@dataclass(frozen=True)
class Advice:
    """Advice for a run within a budget of memory."""

    run: ResolvedRun
    device: str
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

    @property
    def ranked(self) -> tuple[Choice, ...]:
        """The recommended stack, then the frontier from the fastest on."""
        return (self.recommended, *self.frontier)

    def training_seconds(self, tokens: float) -> float:
        """Return the seconds in which the recommended stack trains on so many tokens."""
        return tokens / self.recommended.tokens_per_second

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return {
            "device": self.device,
            "budget_bytes": self.budget_bytes,
            "of": self.of,
            "baseline": self.baseline.to_dict(),
            "recommended": self.recommended.to_dict(),
            "command": self.command,
            "frontier": [one.to_dict() for one in self.frontier],
            "parts": [
                {"element": one.element, "loss": one.loss, "without": one.without and one.without.to_dict()}
                for one in self.parts
            ],
            "different_training": [one.to_dict() for one in self.different],
            "candidates": self.counts.candidates,
            "timed": self.counts.timed,
            "replayed": self.counts.replayed,
            "refused": list(self.counts.refused),
            "unseen": list(self.counts.unseen),
            "unadvised": list(self.counts.unadvised),
            "warnings": list(self.warnings),
        }
