"""Predictions against measurements: tables of errors by device and technique, and a page with each run as a point."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from assay.analysis.accuracy import QUANTITIES, Accuracy, PredictedFigure
from assay.files import write_file
from assay.report.kit.blocks import Block, Table
from assay.report.kit.drawing import DARK, LIGHT, SOFT, canvas, marker, series, svg, variables, with_print_colours
from assay.report.kit.view import Shown, check_page, render_template

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.analysis.accuracy import Errors

_TITLES = {
    "memory": "peak of tensors",
    "traced": "peak of tensors, traced",
    "time": "step time, from timed steps",
    "roofline": "step time, by a roofline",
}
_FRAME = ("run", "device", "techniques", "quantity", "predicted", "measured", "error")
_COLUMNS = ("runs", "median error", "95th percentile", "worst", "worst run")
NOTHING = (
    "No run here has both a prediction and a measurement. `assay train demo` makes such a run; step time is predicted "
    "after `assay machine`."
)


class AccuracyView(Shown[Accuracy]):
    """Errors of predictions, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield tables of all runs, devices and techniques, or a sentence if nothing can be compared."""
        found = self.found
        if found.predictions:
            yield _table("predicted", found.overall())
            yield _table("by device", found.by_device())
            yield _table("by technique", found.by_technique())
            yield explanation()
        else:
            yield NOTHING
        yield from missing(found)

    def values(self) -> dict[str, Any]:
        """Return the errors of all runs, devices and techniques for programs."""
        return self.found.to_dict()

    def frame(self) -> "pandas.DataFrame":
        """Return a row per run and quantity."""
        import pandas

        rows = [{name: getattr(one, name) for name in _FRAME} for one in self.found.predictions]
        return pandas.DataFrame(rows, columns=list(_FRAME))

    def figure(self, name: str = "") -> "Figure | None":
        """Return the figure of predicted against measured values; None without a prediction."""
        found = self.found
        drawn = _drawn(found)
        return None if drawn is None else with_print_colours(drawn)


def explanation() -> str:
    """Sentences on how an error is counted."""
    return (
        "An error is the prediction over the measurement, minus one; medians and percentiles are of its size. A run "
        "counts for each technique of its stack."
    )


def missing(found: "Accuracy") -> Iterator[str]:
    """Yield sentences on runs that are not counted."""
    if found.predictions and found.others:
        yield f"{_runs(found.others)} without a predicted and measured figure, or without its proof, not counted."
    if found.unreadable:
        yield f"{_runs(found.unreadable)} cannot be read or checked; `assay runs ls` says why."


def _runs(count: int) -> str:
    return f"{count} run{'s' if count != 1 else ''}"


def _table(title: str, rows: "Sequence[Errors]") -> Table:
    return Table.of((title, "figure", *_COLUMNS), map(_row, rows), _COLUMNS[:4], spare=("worst run",))


def _row(one: "Errors") -> tuple[str, ...]:
    return (
        one.group,
        _TITLES[one.quantity],
        str(one.runs),
        _share(one.median),
        _share(one.percentile_95),
        _share(one.worst, signed=True),
        one.worst_run,
    )


def _share(error: float, *, signed: bool = False) -> str:
    """A fraction in percent; exact predictions are 0 %, and small errors keep their size."""
    digits = 1 if abs(error) >= 0.001 or error == 0 else 4
    return f"{100 * error:{'+' if signed and error else ''}.{digits}f} %".replace("-", "−")


_AXES = {
    "memory": "peak of tensors, MiB",
    "traced": "peak of tensors by a trace, MiB",
    "time": "step time, ms",
    "roofline": "step time by a roofline, ms",
}
_UNITS = {"memory": 2.0**20, "traced": 2.0**20, "time": 1e-3, "roofline": 1e-3}
_CAPTION = "Each point is a run, and each colour a device. On the line the prediction is the measurement."


def write_accuracy_page(found: Accuracy, path: Path) -> Path:
    """Write the page, whole or not at all, and return its path. Raises `UsageError` as `check_page`, `StorageError`."""
    check_page(path)
    write_file(path, render_accuracy(found).encode())
    return path.absolute()


def render_accuracy(found: Accuracy) -> str:
    """Return the page as text."""
    drawn = _drawn(found)
    return render_template(
        "accuracy.html",
        heading="Accuracy of predictions",
        runs=found.runs,
        blocks=list(AccuracyView(found).blocks()),
        figure=Markup() if drawn is None else Markup(svg(drawn, "predicted against measured")),
        caption=_CAPTION,
        light=variables(LIGHT),
        dark=variables(DARK),
    )


def _drawn(found: Accuracy) -> "Figure | None":
    if not found.predictions:
        return None
    devices = list(dict.fromkeys(one.device for one in found.predictions))
    shown = [one for one in QUANTITIES if any(each.quantity == one for each in found.predictions)]
    with canvas(4.5 * len(shown), 3.8, len(shown)) as (drawn, axes):
        for axis, quantity in zip(axes, shown, strict=True):
            points = [one for one in found.predictions if one.quantity == quantity]
            _points(axis, points, devices, _UNITS[quantity])
            axis.set(title=_AXES[quantity], xlabel="measured", ylabel="predicted")
        return drawn


def _points(axis: Any, points: list[PredictedFigure], devices: list[str], unit: float) -> None:
    """Draw the points on logarithmic axes, with the line of exact predictions."""
    from matplotlib.ticker import LogLocator, NullLocator

    ends = [one.measured / unit for one in points] + [one.predicted / unit for one in points]
    line = (min(ends) / 1.3, max(ends) * 1.3)
    axis.plot(line, line, color=SOFT, linewidth=0.8)
    for number, device in enumerate(devices):
        here = [one for one in points if one.device == device]
        axis.plot(
            [one.measured / unit for one in here],
            [one.predicted / unit for one in here],
            color=series(number + 1),
            marker=marker(number + 1),
            markersize=4,
            linestyle="none",
        )
    axis.set(xscale="log", yscale="log", xlim=line, ylim=line)
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(LogLocator(subs=(1, 2, 5)))
        side.set_major_formatter("{x:g}")
        side.set_minor_locator(NullLocator())
