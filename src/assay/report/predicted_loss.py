"""Losses that a law predicts: each with its interval, and how far it is from the fitted points."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.report.kit.blocks import Block, Table
from assay.report.kit.view import Shown
from assay.report.laws import rising
from assay.scaling.fitted import Prediction
from assay.scaling.points import QUANTITIES
from assay.units import format_count

if TYPE_CHECKING:
    import pandas


_PREDICTED = ("loss", "low", "high", "beyond", "marked")


class PredictedLossView(Shown[Prediction]):
    """Predicted losses, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield the predicted losses with their intervals, and how far they are from the fitted points."""
        found = self.found
        form, source = found.law.form, found.source
        yield f"{form.name}: {form.formula}" + (
            f", constants of {source}." if source else f", fitted to {found.fitted} points."
        )
        quantities = [QUANTITIES[name] for name in form.needs]
        columns = (*quantities, "loss", "95 % interval", "beyond the points")
        rows = (_row(found, place) for place in range(len(found.loss)))
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
                f"The points do not identify {', '.join(found.unidentified)}. Losses far beyond the points may be "
                "wrong by more than their interval says."
            )
        if any(name != form.extent and far > 1 for name, far in zip(found.furthest, found.beyond, strict=True)):
            yield f"Intervals allow for more {QUANTITIES[form.extent]} only, and for no other quantity."
        if found.law_taken_as_true:
            yield (
                "The points are too few to measure how errors grow beyond them, so the interval takes the law as true."
            )
        if any(found.marked):
            yield (
                "A prediction more than 100 times beyond the points, or below them, is marked: no hold-out has tested "
                "it."
            )

    def values(self) -> dict[str, Any]:
        """Return the same for programs; one object for each point."""
        found = self.found
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

    def frame(self) -> "pandas.DataFrame":
        """Return a row per prediction: the question, `loss`, `low`, `high`, `beyond`, `marked`."""
        import pandas

        found = self.found
        asked = {name: getattr(found.points, name) for name in found.law.form.needs}
        return pandas.DataFrame(asked | {name: getattr(found, name) for name in _PREDICTED})


def _row(found: Prediction, place: int) -> tuple[str, ...]:
    low, high = found.low[place], found.high[place]
    return (
        *(format_count(float(getattr(found.points, name)[place])) for name in found.law.form.needs),
        f"{found.loss[place]:.4f}",
        "–" if np.isnan(low) else f"{low:.4f} to {high:.4f}",
        _far(float(found.beyond[place]), found.furthest[place]),
    )


def _far(beyond: float, column: str) -> str:
    if np.isnan(beyond):
        return "–"
    far = f"{beyond:.3g} times in {QUANTITIES[column]}" + (" (far)" if beyond > 100 else "")
    return "within" if beyond <= 1 else far
