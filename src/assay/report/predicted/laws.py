"""Laws as text: which can be fitted, and what one predicts."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.report.blocks import Block, Table
from assay.report.predicted.scaling import rising
from assay.scaling.points import QUANTITIES
from assay.units import format_count

if TYPE_CHECKING:
    from assay.scaling.fitted import Prediction
    from assay.scaling.laws import Form


def laws_report(forms: "Iterable[Form]") -> Iterator[Block]:
    """Yield a row for each law, then how each counts, where it is from, and its published constants."""
    every = tuple(forms)
    yield Table.of(("law", "loss"), ((form.name, form.formula) for form in every))
    for form in every:
        yield f"{form.name}: {form.counts}. {form.source}."
        for source, numbers in form.published.items():
            constants = zip(form.constants, numbers, strict=True)
            yield f"  {source}: " + ", ".join(f"{one.symbol} {number:.6g}" for one, number in constants) + "."
    yield "Constants of different laws are never mixed, although they share symbols: each is of one fit."


def laws_values(forms: "Iterable[Form]") -> list[dict[str, Any]]:
    """Return the same for programs."""
    return [
        {
            "law": form.name,
            "formula": form.formula,
            "counts": form.counts,
            "source": form.source,
            "needs": list(form.needs),
            "published": {
                source: {one.symbol: number for one, number in zip(form.constants, numbers, strict=True)}
                for source, numbers in form.published.items()
            },
        }
        for form in forms
    ]


def prediction_report(found: "Prediction") -> Iterator[Block]:
    """Yield the predicted losses with their intervals, and how far they are from the fitted points."""
    form, points, source = found.law.form, found.points, found.source
    yield f"{form.name}: {form.formula}" + (
        f", constants of {source}." if source else f", fitted to {found.fitted} points."
    )
    quantities = [QUANTITIES[name] for name in form.needs]
    columns = (*quantities, "loss", "95 % interval", "beyond the points")
    rows = [
        (
            *(format_count(float(getattr(points, name)[place])) for name in form.needs),
            f"{found.loss[place]:.4f}",
            "–" if np.isnan(found.low[place]) else f"{found.low[place]:.4f} to {found.high[place]:.4f}",
            _far(float(found.beyond[place]), found.furthest[place]),
        )
        for place in range(len(found.loss))
    ]
    yield Table.of(columns, rows, columns)
    if warning := found.accounting.warning:
        yield f"! {warning} FLOPs that are asked for are as the points count them."
    if source:
        yield (
            "Published constants have no points here, so there is no interval. The loss is of the paper's text and "
            "tokenizer."
        )
    yield from rising(found.rising)
    if found.unidentified and np.nanmax(found.beyond) > 1:
        yield (
            f"The points do not identify {', '.join(found.unidentified)}. Losses far beyond the points may be wrong by "
            "more than their interval says."
        )
    if any(name != form.extent and far > 1 for name, far in zip(found.furthest, found.beyond, strict=True)):
        yield f"Intervals allow for more {QUANTITIES[form.extent]} only, and for no other quantity."
    if found.law_taken_as_true:
        yield "The points are too few to measure how errors grow beyond them, so the interval takes the law as true."
    if any(found.marked):
        yield "A prediction more than 100 times beyond the points, or below them, is marked: no hold-out has tested it."


def _far(beyond: float, column: str) -> str:
    if np.isnan(beyond):
        return "–"
    far = f"{beyond:.3g} times in {QUANTITIES[column]}" + (" (far)" if beyond > 100 else "")
    return "within" if beyond <= 1 else far


def prediction_values(found: "Prediction") -> dict[str, Any]:
    """Return the same for programs; one object for each point."""
    form, points = found.law.form, found.points

    def known(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    return {
        "law": form.name,
        "source": found.source,
        "predictions": [
            {name: float(getattr(points, name)[place]) for name in form.needs}
            | {
                "loss": float(found.loss[place]),
                "low": known(found.low[place]),
                "high": known(found.high[place]),
                "beyond": known(found.beyond[place]),
                "marked": found.marked[place],
            }
            for place in range(len(found.loss))
        ],
    }
