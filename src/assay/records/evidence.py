"""Proofs: the evidence of an optimization in a trace, and the errors of a run's values against their references."""

from collections.abc import Callable
from typing import Any

from assay.config.base import Frozen
from assay.records.base import Record
from assay.units import format_steps


class Evidence(Frozen):
    """Result of one optimization's `verify`."""

    optimization: str
    observed: str
    """A fact with its counts, for instance "49 of 49 matmuls in bfloat16"."""
    verdict: bool


WIDE_GROUPS = 2
"""Groups of a lossy run's evaluations with float32's loss from which on a run, or a row of several, is suspect."""


# More than 20 fields: it is a published record, whose readers know these names.
class ValueProof(Record):
    """Result of the value check: losses, gradients and updates of some of a run's steps against their references.

    Nothing is right until it was shown: without a comparison `verdict` is false.
    """

    verdict: bool = False
    """True if values were compared and every one is as near to its reference as the run's optimizations promise."""
    failures: tuple[str, ...] = ()
    """One sentence for each kind of wrong value."""
    unchecked: str = ""
    """Reason why no value was to be compared; empty if a check was due."""
    broken: str = ""
    """Reason why a check that was due has no answer; empty if it has one."""
    steps: int = 0
    """Steps whose losses and gradients were compared."""
    updates: int = 0
    """Updates that were replayed."""
    replayed: int = 0
    """Steps of the run's middle among `steps`: each was replayed whole."""
    middle_steps: int = 0
    """Steps of the run's middle, from which the replayed ones were drawn."""
    since: int | None = None
    """Step from which on the proven process trained; None in records that are older than this field."""
    unproven_steps: int = 0
    """Steps of earlier processes, from which the proven one went on, whose values nobody showed to be right."""
    evaluations: int = 0
    """Evaluations of the run of which groups of batches were evaluated again."""
    all_evaluations: int = 0
    """Evaluations that the proven process made."""
    wide_groups: int = 0
    """Groups of a lossy run's repeated evaluations that have float32's loss; `WIDE_GROUPS` of them are no chance."""
    watched_updates: int = 0
    """Updates of which a sample of elements was replayed, whatever part of the run they belong to."""
    without_dropout: bool = False
    """True if gradients were compared at dropout 0, because the baseline cannot have the run's masks."""
    reduced_reductions: bool = False
    """True if bounds allow for products that cuBLAS adds up in 16 bits."""
    half_repeated_masks: int = 0
    """Dropout masks of the recorded steps of which half repeats half of the mask before, as torch draws small ones."""
    gradients: int = 0
    """Parameters whose gradients were checked."""
    loss_error: float | None = None
    """Largest relative error of a loss."""
    gradient_error: float | None = None
    """Largest relative error of a gradient, as a Euclidean norm over one parameter."""
    update_error: float | None = None
    """Largest error of an update, relative to how far the weight moved."""
    used: float = 0.0
    """Largest error over its bound; above 1 it is a failure."""
    seconds: float | None = None
    """Time of the check, without the start of its process."""
    process_seconds: float | None = None
    """Time that the run waited for its reference process."""
    baseline_steps: float | None = None
    """Time of the check, without the start of its process, in steps of the float32 baseline."""
    replay_baseline_steps: float | None = None
    """Time that a replayed step of the middle was expected to take, by the check of the first steps, in such steps."""

    @property
    def checked(self) -> bool:
        """True if values were compared with a reference."""
        return not self.unchecked and not self.broken

    @property
    def lacks(self) -> str:
        """The part that was not compared; empty if all was.

        Runs of earlier versions say nothing of their middle: it was not replayed.
        """
        if not self.checked:
            return f"its values were not compared: {self.broken or self.unchecked}"
        if self.unproven_steps:
            return f"{format_steps(self.unproven_steps)} of an earlier process were not compared"
        had_a_middle = self.since is None or self.middle_steps
        return "steps between its first and last were not checked" if had_a_middle and not self.replayed else ""

    def chance_of_missing(self, faulty: int) -> float:
        """Return the largest probability that a fault in `faulty` steps of the middle is in no replayed step.

        The middle is cut into as many equal parts as steps are replayed, and one step is drawn from each. The product
        of the parts' probabilities is largest if the faulty steps are spread evenly: (1 − faulty/steps)^replayed.
        """
        if not self.middle_steps:
            return 0.0
        return float(max(0.0, 1 - faulty / self.middle_steps) ** self.replayed)

    def joined(self, later: "ValueProof") -> "ValueProof":
        """Return the proof of this part of a run and a later one together."""
        if not later.checked or not self.checked:
            return self if later.unchecked else later
        counts = ("steps", "updates", "replayed", "evaluations", "wide_groups", "half_repeated_masks")
        sums = (*counts, "seconds", "process_seconds", "baseline_steps")
        highest = (
            "middle_steps",
            "since",
            "unproven_steps",
            "all_evaluations",
            "watched_updates",
            "without_dropout",
            "reduced_reductions",
            "gradients",
            "loss_error",
            "gradient_error",
            "update_error",
            "used",
            "replay_baseline_steps",
        )
        return ValueProof(
            verdict=self.verdict and later.verdict,
            failures=self.failures + later.failures,
            **{name: _together(sum, self, later, name) for name in sums},
            **{name: _together(max, self, later, name) for name in highest},
        )


def _together(of: Callable[[list[Any]], Any], one: ValueProof, other: ValueProof, name: str) -> Any:
    """Return the sum or the maximum of two proofs' figures; None if neither has one."""
    known = [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
    return of(known) if known else None
