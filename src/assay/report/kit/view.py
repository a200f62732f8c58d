"""The view of a value: what a reader is shown of it, made once for terminal, page, JSON, notebook and dashboard.

A view is looked up by the type of its value. It keeps what it has computed, so all that show it share one answer.
"""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from assay.report.blocks import Block

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.analysis.comparison import Comparison

_MODULES = {
    "assay.analysis.comparison.Comparison": "assay.report.study.view",
    "assay.scaling.scaling_study.ScalingAnswer": "assay.report.scaling_study_view",
}
"""Module with the view of a type, which is its function `view`. Names, so that nothing is loaded that is not shown."""


class View:
    """The result of a study, as a reader is shown it."""

    comparison: "Comparison"
    table: "Comparison | None" = None
    """The rows that a terminal shows as a table above the rest; None if the report has its own."""

    def blocks(self) -> Iterable[Block]:
        """Return the whole report, as a notebook shows it."""
        raise NotImplementedError

    def printed(self) -> Iterable[Block]:
        """Return what a terminal prints below the table."""
        raise NotImplementedError

    def closing(self) -> Iterator[tuple[str, str]]:
        """Yield label and text of the last lines."""
        raise NotImplementedError

    def values(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        raise NotImplementedError

    def page(self) -> tuple[str, dict[str, Any]]:
        """Return the name of the page's template, and its content."""
        raise NotImplementedError

    def figure(self, name: str = "") -> "Figure | None":
        """Return the main figure, or another one by its name; None if there is nothing to draw."""
        raise NotImplementedError


def view(value: Any) -> View:
    """Return the view of a value, and a view as it is. Raises `TypeError` for a value that has none."""
    if isinstance(value, View):
        return value
    for one in type(value).__mro__:
        if module := _MODULES.get(f"{one.__module__}.{one.__qualname__}"):
            found: View = import_module(module).view(value)
            return found
    raise TypeError(f"a {type(value).__name__} has no view")
