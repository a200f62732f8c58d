"""The page of a study of scaling: the verdict, the law beside the held-out run, and what both rest on.

Everything follows from the record, so the same record gives the same bytes.
"""

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from assay.report.page.scaled.figures import FIGURES
from assay.report.page.theme import DARK, LIGHT, svg, variables
from assay.report.predicted.scaling import fit_report
from assay.report.scaled.answer import cautions, minima_report, prediction_table, rates_table, runs_table, verdict
from assay.report.scaled.meanings import meanings
from assay.units import format_count, format_flops

if TYPE_CHECKING:
    from assay.scaling.studied.answer import ScalingAnswer


def content(found: "ScalingAnswer") -> dict[str, Any]:
    """Return what the template `scaled.html` shows."""
    record = found.record
    return {
        "record": record,
        "heading": f"{record.name or record.title}: {_heading(found)}",
        "lead": _lead(found),
        "verdict": list(verdict(found)),
        "drawn": [one for figure in FIGURES if (one := _drawn(figure, found)) is not None],
        "prediction": list(prediction_table(found)),
        "minima": list(minima_report(found)),
        "rates": list(rates_table(found)),
        "cautions": list(cautions(found)),
        "law": list(fit_report(found.law)),
        "runs": runs_table(found),
        "meanings": meanings(found),
        "light": variables(LIGHT),
        "dark": variables(DARK),
    }


def _heading(found: "ScalingAnswer") -> str:
    if not found.predictions:
        return "a law of loss, not tested yet"
    worst = max(found.predictions, key=lambda one: abs(one.error))
    times = worst.point.flops / max(one.flops for one in found.fitted)
    whether = "inside" if all(one.inside for one in found.predictions) else "outside"
    return f"{times:.3g} times the compute, predicted within {abs(worst.error):.2%}, {whether} the interval".replace(
        "%", "\N{NO-BREAK SPACE}%"
    )


def _lead(found: "ScalingAnswer") -> str:
    sizes = [one.parameters for one in found.points]
    data = found.record.base.data
    return (
        f"{len(found.points)} runs of {format_count(min(sizes))} to {format_count(max(sizes))} parameters on "
        f"{data.source} in {data.tokenizer} tokens, {format_flops(sum(one.flops for one in found.points))} in all. "
        f"{found.record.created.replace('T', ' ')[:16]} UTC."
    )


def _drawn(figure: Any, found: "ScalingAnswer") -> dict[str, Any] | None:
    drawn = figure.draw(found)
    if drawn is None:
        return None
    return {"title": figure.title, "caption": figure.caption, "svg": Markup(svg(drawn, figure.title))}
