"""Work that decay branches saved, in a sentence and as values."""

from collections.abc import Iterator
from typing import Any

from assay.report.kit.view import Shown
from assay.scaling.branch_saving import BranchSaving
from assay.units import format_seconds


class BranchSavingView(Shown[BranchSaving]):
    """Saved work, as a reader is shown it."""

    @property
    def sentence(self) -> str:
        """Sentence on the work that was saved, as planned and as measured."""
        planned, measured = self.found.planned, self.found.measured
        took = "" if measured.seconds is None else f", which took their trunks {format_seconds(measured.seconds)}"
        said = "" if planned.seconds is None else f" ({format_seconds(planned.seconds)} was predicted)"
        return (
            f"{measured.runs} decay branches did not repeat {measured.steps:,} steps{took}{said}: "
            f"{self.found.share:.0%} of the FLOPs of separate runs.{_whole(planned.runs - measured.runs)}"
        )

    def blocks(self) -> Iterator[str]:
        """Yield the sentence."""
        yield self.sentence

    def values(self) -> dict[str, Any]:
        """Return the same figures for programs."""
        found = self.found
        return {"predicted": vars(found.planned), "measured": vars(found.measured), "share_of_flops": found.share}


def _whole(runs: int) -> str:
    """Return a sentence on branches that trained all of their steps; nothing if there are none."""
    if not runs:
        return ""
    if runs == 1:
        return " One more trained all of its steps, because its trunk had no checkpoint."
    return f" {runs} more trained all of their steps, because their trunks had no checkpoint."
