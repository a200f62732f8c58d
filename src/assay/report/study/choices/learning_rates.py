"""Stable range of learning rates for each batch size, and the loss by learning rate as a figure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.learning_rates import RateSeries, learning_rates
from assay.report.blocks import Block, Table
from assay.report.formats import UNKNOWN, figure
from assay.report.study.choices.wording import in_nats
from assay.report.study.section import Section

if TYPE_CHECKING:
    from assay.report.page.panels import Panel
    from assay.report.study.view import StudyView


def _content(study: "StudyView") -> Iterator[Block]:
    comparison, found = study.comparison, study.of(learning_rates)
    if not found:
        return
    others = any(one.others for one in found)
    columns = ("batch size", "best rate", "loss", "as good", "trained without diverging", "remark")
    rows = (_row(one) for one in found)
    shown = ("batch size", "other levels", *columns[1:]) if others else columns
    yield Table.of(shown, rows if others else ((row[0], *row[2:]) for row in rows), right=("best rate", "loss"))
    yield (
        f"The loss is the mean validation loss over seeds. Rates are as good if their loss is within "
        f"{comparison.record.loss_margin:g}{in_nats(comparison)} of the best, without a worse one between. Chance is "
        "not considered, and nothing is known between and beyond the tested rates."
    )


def _row(one: RateSeries) -> tuple[str, ...]:
    best, stable = one.best, [rate.rate for rate in one.rates if rate.loss is not None]
    diverged = [f"{rate.rate:g}" for rate in one.rates if rate.diverged]
    remarks = [f"diverged at {', '.join(diverged)}"] if diverged else []
    if side := one.open_ended:
        remarks.append(f"a {side} rate may be better: the best one is the {side.removesuffix('er')}est tested")
    return (
        str(one.batch_size),
        one.others,
        UNKNOWN if best is None else f"{best.rate:g}",
        figure(best.loss if best else None),
        _span([rate.rate for rate in one.good]),
        _span(stable) if len(stable) < len(one.rates) else "all",
        "; ".join(remarks),
    )


def _span(rates: list[float]) -> str:
    if not rates:
        return "none"
    return f"{rates[0]:g}" if len(rates) == 1 else f"{min(rates):g} to {max(rates):g}"


def _values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {
            "batch_size": one.batch_size,
            "others": one.others,
            "best": one.best.rate if one.best else None,
            "as_good": [rate.rate for rate in one.good],
            "rates": [{**rate._asdict(), "row": rate.row.treatment} for rate in one.rates],
            "best_may_be": one.open_ended or None,
        }
        for one in study.of(learning_rates)
    ]


def _panels(study: "StudyView") -> "tuple[Panel, ...]":
    from assay.report.study.choices.drawing import rate_panels  # the room of pages imports that of sections

    return rate_panels(study)


SECTION = Section(
    "learning_rates",
    "Learning rates",
    _content,
    _values,
    _panels,
    "Mean validation loss over seeds by learning rate, on a logarithmic axis. A × marks a rate with a diverged run.",
)
