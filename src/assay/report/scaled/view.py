"""The view of a study of scaling: its law, and whether it predicted the largest run."""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from assay.analysis.comparison import Comparison, analyse
from assay.report.blocks import Block
from assay.report.views import View
from assay.scaling.studied.answer import ScalingAnswer, answer_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ScalingView(View):
    """Law, predictions and runs of a study of scaling, as a reader is shown them."""

    def __init__(self, found: ScalingAnswer) -> None:
        self.found = found

    @cached_property
    def comparison(self) -> Comparison:  # type: ignore[override]
        """The rows of the study, whose tables are beside the page."""
        return analyse(self.found.record)

    def blocks(self) -> Iterator[Block]:
        """Yield the verdict, the minima of the budgets, the test of the rates, every run, and the law."""
        from assay.report.scaled.answer import answer_report

        return answer_report(self.found)

    def printed(self) -> Iterator[Block]:
        """Yield the whole report, because there is no table above it."""
        yield from self.blocks()
        yield ""

    def closing(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of the last lines: the verdict, what it rests on, and what to run next."""
        from assay.report.closing.scaling import closing

        return closing(self.found)

    def values(self) -> dict[str, Any]:
        """Return law, predictions and points as plain values for JSON."""
        from assay.report.scaled.answer import answer_values

        return answer_values(self.found)

    def page(self) -> tuple[str, dict[str, Any]]:
        """Return the template of the page, and its content."""
        from assay.report.page.scaled import content

        return "scaled.html", content(self.found)

    def figure(self, name: str = "") -> "Figure | None":
        """Return the figure of losses in normalised compute, with the held-out run."""
        from assay.report.page.scaled import compute_figure
        from assay.report.page.theme import printed

        drawn = compute_figure(self.found)
        return None if drawn is None else printed(drawn)


def view(found: ScalingAnswer) -> ScalingView:
    """Return the view of an answer."""
    return ScalingView(found)


def answered(comparison: Comparison) -> ScalingView | None:
    """Return the view of the answer to a comparison's record; None while too few runs have ended."""
    found = answer_of(comparison.record)
    if found is None:
        return None
    made = ScalingView(found)
    made.__dict__["comparison"] = comparison
    return made
