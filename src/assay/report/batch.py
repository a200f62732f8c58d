"""A critical batch size as text and values, with the steps and examples that batch sizes take."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.report.kit.blocks import Block, Facts, Table
from assay.report.kit.drawing import SOFT, canvas, plain_numbers, series, with_print_colours
from assay.report.kit.view import Shown
from assay.scaling.batch import Batching
from assay.units import format_count, format_seconds

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.scaling.batch import BatchRow, Critical

_FROM_CRITICAL = 30.0
"""Factor of batch size that is drawn on both sides of the critical one."""


class BatchView(Shown[Batching]):
    """A critical batch size, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the critical batch size, a row for each batch size, and how the columns follow."""
        found = self.found
        yield Facts.of(_facts(found))
        counted = any(one.step_count is not None for one in found.rows)
        timed = any(one.seconds is not None for one in found.rows)
        columns: tuple[str, ...] = ("batch", "steps, times the least", "examples, times the least")
        columns += ("steps", "examples") if counted else ()
        columns += ("same devices", "devices in proportion") if timed else ()
        yield Table.of(columns, (_row(one, counted, timed) for one in found.rows), columns)
        yield (
            "S = S_min·(1 + B_crit/B) steps and E = E_min·(1 + B/B_crit) examples reach the same loss (McCandlish et "
            "al. 2018, arXiv:1812.06162). Examples are compute; steps are time, if devices grow with the batch. At the "
            "critical batch size both are twice the least."
        )
        if timed:
            yield (
                "On the same devices a step is taken to last in proportion to its batch. On devices in proportion it "
                "lasts as now, without slower communication."
            )
        side = found.critical.one_sided
        if side is not None:
            yield (
                f"All measured batch sizes are {side} the critical one, so it is an extrapolation. Measure "
                f"{'larger' if side == 'below' else 'smaller'} batches as well."
            )
        if not _identified(found.critical):
            yield (
                "The measured batch sizes do not identify the critical one: the ends of its interval differ by more "
                "than a factor of ten. Measure smaller and larger batches."
            )

    def values(self) -> dict[str, Any]:
        """Return the same figures for programs."""
        found = self.found
        critical = found.critical
        return {
            "critical": {
                "size": critical.size,
                "unit": critical.unit,
                "interval": None if critical.interval is None else list(critical.interval),
                "source": critical.source,
                "least_steps": critical.least_steps,
                "identified": _identified(critical),
            },
            "present": None if found.present is None else found.present._asdict(),
            "planned": None if found.planned is None else found.planned._asdict(),
            "batches": [one._asdict() for one in found.rows],
        }

    def frame(self) -> "pandas.DataFrame":
        """Return a row per batch size, indexed by `batch`."""
        import pandas

        return pandas.DataFrame([one._asdict() for one in self.found.rows]).set_index("batch")

    def figure(self, name: str = "") -> "Figure":
        """Return the figure of steps and examples to the same loss, over the least of each."""
        found = self.found
        critical = found.critical
        sizes = np.geomspace(critical.size / _FROM_CRITICAL, critical.size * _FROM_CRITICAL, 60)
        with canvas(5.5, 3.8, 1) as (drawn, (axis,)):
            for number, (label, value) in enumerate(
                (("steps", critical.steps), ("examples", critical.examples)), start=1
            ):
                axis.plot(
                    sizes, [value(float(size)) for size in sizes], color=series(number), linewidth=1.2, label=label
                )
            axis.axvline(critical.size, color=SOFT, linewidth=0.8)
            axis.set(xscale="log", yscale="log", xlabel=f"batch size, {critical.unit}", ylabel="times the least")
            plain_numbers(axis)
            axis.legend(frameon=False)
            return with_print_colours(drawn)


def _identified(critical: "Critical") -> bool:
    from assay.scaling.batch import IDENTIFIED

    fitted = critical.least_steps is not None and critical.interval is not None
    return not (fitted and critical.interval is not None and critical.interval[1] > IDENTIFIED * critical.interval[0])


def _facts(found: Batching) -> Iterator[tuple[str, str]]:
    critical, plan = found.critical, found.planned
    ends = "" if critical.interval is None else " (95 %: {} to {})".format(*map(_count, critical.interval))
    yield "critical", f"{_count(critical.size)} {critical.unit}{ends}"
    yield "by", critical.source
    if critical.least_steps is not None:
        yield "least", f"{_count(critical.least_steps)} steps, {_count(critical.least_steps * critical.size)} examples"
    if plan is not None:
        yield "run", f"{_count(plan.parameters)} parameters, {_count(plan.steps)} steps of {_count(plan.batch)} tokens"
        yield "loss", f"{plan.loss:.3f} nats per token, by L(N, S_min) of Kaplan et al. 2020, N without embeddings"
        yield "S_min", f"{_count(plan.least_steps)} steps, S/(1 + B_crit/B)"
        yield "C_min", f"{plan.least_flops:.3g} of {plan.flops:.3g} FLOPs, C/(1 + B/B_crit)"
    elif found.present is not None:
        now = found.present
        seconds = "" if now.step_seconds is None else f", {format_seconds(now.step_seconds)} each"
        yield "run", f"{_count(now.steps)} steps of {_count(now.batch)} {critical.unit}{seconds}"


def _row(one: "BatchRow", counted: bool, timed: bool) -> tuple[str, ...]:
    row: tuple[str, ...] = (_count(one.batch), f"{one.steps:.3g}", f"{one.examples:.3g}")
    if counted:
        row += _or_dash(one.step_count, _count), _or_dash(one.example_count, _count)
    if timed:
        row += _or_dash(one.seconds, format_seconds), _or_dash(one.seconds_in_proportion, format_seconds)
    return row


def _or_dash(value: float | None, text: Any) -> str:
    return "–" if value is None else str(text(value))


def _count(value: float) -> str:
    return f"{value:,.0f}" if 100 <= value < 100_000 else f"{value:.3g}" if value < 1e3 else format_count(value)
