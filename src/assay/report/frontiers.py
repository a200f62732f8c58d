"""Optima without a law of loss as text: parabolas at equal compute, and the envelope of training curves."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.report.kit.blocks import Block, Table
from assay.report.kit.view import Shown
from assay.scaling.approaches import Envelope, IsoFlop
from assay.units import format_count

if TYPE_CHECKING:
    from assay.scaling.approaches import Optima


class IsoFlopView(Shown[IsoFlop]):
    """Minima at equal compute, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield the minimum of each budget, and the power laws."""
        found = self.found
        columns = ("FLOPs", "sizes", "best size", "loss there")
        yield Table.of(
            columns,
            (
                (
                    f"{one.flops:.3g}",
                    f"{format_count(one.sizes.min())} to {format_count(one.sizes.max())}",
                    "–" if one.inside is None else format_count(one.inside),
                    "–" if one.inside is None else f"{float(one.loss(one.inside)):.4f}",
                )
                for one in found.parabolas
            ),
            columns,
        )
        yield from _powers(found.optima, "approach 2 has 0.49 and 0.51")

    def values(self) -> dict[str, Any]:
        """Return the same figures for programs."""
        found = self.found
        budgets = [
            {"flops": one.flops, "sizes": len(one.sizes), "minimum": one.minimum, "counts": one.inside is not None}
            for one in found.parabolas
        ]
        return {"budgets": budgets} | _values(found.optima)


class EnvelopeView(Shown[Envelope]):
    """An envelope of training curves, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the reach of the envelope, and the power laws."""
        found = self.found
        counted = [size for size, counts in zip(found.parameters, found.counts, strict=True) if counts]
        yield (
            f"The envelope reaches from {found.flops[0]:.3g} to {found.flops[-1]:.3g} FLOPs. Sizes from "
            f"{format_count(min(counted))} to {format_count(max(counted))} have the lowest loss within it."
        )
        yield from _powers(found.optima, "approach 1 has 0.50 and 0.50")

    def values(self) -> dict[str, Any]:
        """Return the same figures for programs."""
        found = self.found
        return {"flops": [float(found.flops[0]), float(found.flops[-1])]} | _values(found.optima)


def _powers(found: "Optima", published: str) -> Iterator[Block]:
    columns = ("optimum", "exponent", "95 % interval")
    rows = [
        (name, f"{one.exponent:.3f}", "–" if one.interval is None else "{:.3f} to {:.3f}".format(*one.interval))
        for name, one in (("N ∝ C^a", found.size), ("D ∝ C^b", found.data))
    ]
    yield Table.of(columns, rows, columns[1:])
    counted = "C = 6·N·D" if found.accounting.plain else "C is as the runs count it"
    yield f"{counted}. Intervals are by a bootstrap of runs, {found.draws} draws. In Hoffmann et al. 2022 {published}."
    yield from (f"! {warning}" for warning in found.warnings)


def _values(found: "Optima") -> dict[str, Any]:
    powers = {
        name: {"level": one.level, "exponent": one.exponent, "interval": one.interval and list(one.interval)}
        for name, one in (("parameters", found.size), ("tokens", found.data))
    }
    return powers | {"draws": found.draws, "warnings": list(found.warnings)}
