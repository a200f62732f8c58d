"""Figures of a comparison, each as panels; no panels mean that there is nothing to draw.

Panels are drawn in the marker colours of the theme. The baseline is the first series and keeps its colour in all
figures. Categories of memory have the colours of the series in their own order.
"""

from collections.abc import Callable

from assay.analysis.comparison import Comparison
from assay.report.page.compared.changes import changes
from assay.report.page.compared.courses import by_seconds, by_step, distances
from assay.report.page.compared.memory import memory
from assay.report.page.compared.predictions import predictions
from assay.report.page.compared.steps import step_times
from assay.report.page.panels import Panel

FIGURES: dict[str, Callable[[Comparison], tuple[Panel, ...]]] = {
    "changes": changes,
    "memory": memory,
    "seconds": by_seconds,
    "step_times": step_times,
    "losses": by_step,
    "distances": distances,
    "predictions": predictions,
}
"""Figures by name, in the order of the page."""
TITLES = {
    "changes": "Memory and time against the baseline",
    "memory": "Memory over a step",
    "seconds": "Loss against seconds",
    "step_times": "Distribution of step times",
    "losses": "Loss by step",
    "distances": "Distance from the baseline’s loss",
    "predictions": "Predicted against measured",
}
"""Headings of the figures on a page."""
