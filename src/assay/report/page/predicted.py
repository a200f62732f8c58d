"""The page of a study that is predicted on a GPU: its tables, with heat maps of changes and deviations."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.analysis.predicted_rows import COMPARED, grids
from assay.files import write_file
from assay.report.page import check_page, inline, render_template
from assay.report.page.theme import DARK, LIGHT, variables
from assay.report.predicted.study import PREDICTED, leading, matrices, wording
from assay.report.study.factors.heat_map import map_panels

if TYPE_CHECKING:
    from assay.report.page.panels import Panel
    from assay.studies.predicted import PredictedStudy

_TITLES = {one.name: f"{one.title}, predicted" for one in COMPARED}
CAPTION = (
    "Change against the baseline in percent, and deviation from the sum of the single changes in percentage points, "
    "predicted. Blue is lower, orange is higher. The tables mark changes of time that are within their margin."
)


def write_predicted_page(study: "PredictedStudy", path: Path) -> Path:
    """Write the page, whole or not at all, and return its path. Raises `UsageError` as `check_page`, `StorageError`."""
    check_page(path)
    write_file(path, render_predicted(study).encode())
    return path.absolute()


def render_predicted(study: "PredictedStudy") -> str:
    """Return the page as text."""
    drawn = {"panels": inline(PREDICTED, maps(study)), "caption": CAPTION}
    return render_template("predicted.html", **texts(study), **drawn, light=variables(LIGHT), dark=variables(DARK))


def texts(study: "PredictedStudy") -> dict[str, Any]:
    """Return the content of a page without its figures, which the dashboard shows as well."""
    return {
        "kicker": PREDICTED,
        "heading": f"{study.name or study.base} on {study.machine.accelerators[0].name}",
        "leading": list(leading(study)),
        "matrices": list(matrices(study)),
        "wording": list(wording(study)),
    }


def maps(study: "PredictedStudy") -> "tuple[Panel, ...]":
    """Return the heat maps of a study with several factors; none of a comparison."""
    return map_panels(grids(study), _TITLES.__getitem__)
