"""Work that decay branches saved, in a sentence and as values."""

from collections.abc import Iterator
from typing import Any

from assay.report.kit.view import Shown
from assay.scaling.branch_saving import BranchSaving
from assay.units import format_seconds


class BranchSavingView(Shown[BranchSaving]):
    """Saved work, as a reader is shown it."""

    @property
    def sentences(self) -> str:
        """Sentences on the work that was saved, as planned and as measured, and on the control's whole run."""
        planned, measured = self.found.planned, self.found.measured
        took = "" if measured.seconds is None else f", which took their trunks {format_seconds(measured.seconds)}"
        said = "" if planned.seconds is None else f" ({format_seconds(planned.seconds)} was predicted)"
        return (
            f"{measured.runs} decay branches did not repeat {measured.steps:,} steps{took}{said}: "
            f"{self.found.share:.0%} of the FLOPs of separate runs.{_whole(planned.runs - measured.runs)}"
            f"{_equal(self.found.apart)}"
        )

    def blocks(self) -> Iterator[str]:
        """Yield the sentences."""
        yield self.sentences

    def values(self) -> dict[str, Any]:
        """Return the same figures for programs."""
        found = self.found
        return {
            "predicted": vars(found.planned),
            "measured": vars(found.measured),
            "share_of_flops": found.share,
            "control_apart": found.apart,
        }


def _whole(runs: int) -> str:
    """Return a sentence on branches that trained all of their steps; nothing if there are none."""
    if not runs:
        return ""
    if runs == 1:
        return " One more trained all of its steps, because its trunk had no checkpoint."
    return f" {runs} more trained all of their steps, because their trunks had no checkpoint."


def _equal(apart: float | None) -> str:
    """Return a sentence on the control as a branch and as a whole run."""
    if apart is None:
        return ""
    differs = "the same loss to the last bit" if apart == 0 else f"losses that differ by {apart:.2g} nats"
    return f" The control as a branch and as a whole run has {differs}."
