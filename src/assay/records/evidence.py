"""Proofs: the evidence of an optimization in a trace, and the errors of a run's values against their references."""

from pydantic import ConfigDict

from assay.config.base import Frozen

BEGINNING_ONLY = "proven at the beginning only: no step was traced at the end"
"""Printed if a run stopped before the second trace."""


class Evidence(Frozen):
    """Result of one optimization's `verify`."""

    optimization: str
    observed: str
    """A fact with its counts, for instance "49 of 49 matmuls in bfloat16"."""
    verdict: bool


class ValueProof(Frozen):
    """Result of the value check: losses, gradients and updates of a run's first steps against its references."""

    model_config = ConfigDict(strict=False)  # read back from JSON, where tuples are lists

    verdict: bool = True
    """True if every value is as near to its reference as the run's optimizations promise."""
    failures: tuple[str, ...] = ()
    """One sentence for each kind of wrong value."""
    unchecked: str = ""
    """Reason why nothing was checked; empty if the check ran."""
    steps: int = 0
    """Steps whose batches and losses were checked."""
    updates: int = 0
    """Updates that were replayed."""
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

    @property
    def checked(self) -> bool:
        """True if any value was compared with a reference."""
        return not self.unchecked
