"""Laws: which can be fitted, a fitted one with its intervals, what one predicts, and its figure."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.report.kit.blocks import Block, Table
from assay.report.kit.drawing import SOFT, canvas, marker, series, with_print_colours
from assay.report.kit.view import Shown
from assay.report.optimal import accounting_values
from assay.scaling.fitted import FittedLaw
from assay.scaling.law_intervals import extents
from assay.scaling.laws import Form
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, QUANTITIES
from assay.units import finite, format_count, format_flops

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.scaling.fitted import HeldOut
    from assay.scaling.law_intervals import Extrapolation


class LawsView(Shown[Collection[Form]]):
    """The laws that can be fitted, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield a row for each law, then how each counts, where it is from, and its published constants."""
        every = self.found
        yield Table.of(("law", "loss"), ((form.name, form.formula) for form in every))
        for form in every:
            yield f"{form.name}: {form.counts}. {form.source}."
            for source, numbers in form.published.items():
                constants = zip(form.constants, numbers, strict=True)
                yield f"  {source}: " + ", ".join(f"{one.symbol} {number:.6g}" for one, number in constants) + "."
        yield "Constants of different laws are never mixed, although they share symbols: each is of one fit."

    def values(self) -> list[dict[str, Any]]:
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
            for form in self.found
        ]


_NORMAL = 1.4826
"""Standard deviation of normal residuals over their median absolute one."""
_NO_SCATTER, _FAR_OFF = 1e-4, 12.0
"""Residual of log L below which points lie on a law, and multiple of the scatter from which one is far off."""


class FitView(Shown[FittedLaw]):
    """A fitted law, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the constants with their intervals, what the points do not say, the optimum, and the test."""
        found = self.found
        form, count = found.law.form, len(found.fit.points)
        dropped = f", without the {found.dropped} highest losses" if found.dropped else ""
        yield f"{form.name}: {form.formula}, fitted to {count} points{dropped}. Objective {found.fit.objective:.7f}."
        yield f"Counts: {form.counts}. Source: {form.source}."
        if warning := found.accounting.warning:
            yield f"! {warning} The law is one of N and D, and C below is 6·N·D."
        yield _constants(found)
        if found.by_byte:
            yield (
                f"{found.by_byte} is a loss per byte of text, so the law is in nats per byte. Published constants are "
                "of losses per token, with which E, A and B cannot be compared."
            )
        yield (
            f"Intervals are by the bootstrap, {len(found.draws)} draws. Losses within the points are more certain than "
            "the constants, because different constants give nearly the same losses."
        )
        yield from _trunks(found)
        if found.together:
            pairs = "; ".join(f"{one} and {other}" for one, other in found.together)
            yield f"These go up and down together, so each alone says little: {pairs}."
        yield from _limits(found)
        yield from rising(found.rising)
        yield from _unidentified(found)
        yield from _residuals(found)
        if found.profile is not None:
            yield _likelihood(found)
        if found.hides_shared_errors:
            yield (
                "The sizes are too few to show errors that all runs of one size share, such as that of a learning "
                "rate. If there are any, intervals are too narrow."
            )
        yield from _optimum(found)
        yield _beyond(found)
        if found.held_out is not None:
            yield _tested(found.held_out, found)

    def values(self) -> dict[str, Any]:
        """Return the same figures for programs; None stands for an open end and a number that is too large."""
        return {name: finite(value) for name, value in _values(self.found).items()}

    def frame(self) -> "pandas.DataFrame":
        """Return a row per constant, indexed by its symbol: the fit, the ends of its intervals, the fit of all."""
        import pandas

        found, ends = self.found, self.found.intervals
        columns: dict[str, dict[str, float | bool | None]] = {
            "fitted": dict(found.law.printed),
            "low": {name: low for name, (low, _) in ends.items()},
            "high": {name: high for name, (_, high) in ends.items()},
            "identified": {name: name not in found.unidentified for name in ends},
        }
        if found.profile is not None:
            columns["profile_low"] = {name: low for name, (low, _) in found.profile.intervals.items()}
            columns["profile_high"] = {name: high for name, (_, high) in found.profile.intervals.items()}
        if found.undropped is not None:
            columns["all_points"] = dict(found.undropped.law.printed)
        return pandas.DataFrame(columns).rename_axis("constant")

    def figure(self, name: str = "") -> "Figure":
        """Draw losses and the law's by compute, with its lowest loss for each compute, and the residuals."""
        found = self.found
        points, form = found.fit.points, found.law.form
        sizes = extents(points, form)
        with canvas(_WIDTH, 3.4, 2) as (figure, (left, right)):
            left.plot(
                sizes, points.loss, color=series(1), marker=marker(1), markersize=3, linestyle="none", label="points"
            )
            left.plot(sizes, found.law.losses(points), color=series(2), marker="_", linestyle="none", label="law")
            reach = np.geomspace(sizes.min(), _FURTHER * sizes.max(), 100)
            if form.optimum(found.law.values, float(reach[0])) is not None:
                best = np.array([found.law.optimum(float(flops)) for flops in reach])
                losses, within = (
                    found.law.loss(best[:, 0], reach / FLOPS_PER_PARAMETER_AND_TOKEN / best[:, 0]),
                    reach <= sizes.max(),
                )
                left.plot(reach[within], losses[within], color=series(3), label="lowest for its compute")
                left.plot(reach[~within], losses[~within], color=series(3), linestyle=":", label="extrapolated")
            left.set(title="loss, and that of the law", ylabel="nats per token", xscale="log")
            left.legend(frameon=False)
            right.axhline(0, color=SOFT, linewidth=0.8)
            right.plot(
                sizes, 100 * found.fit.residuals, color=series(1), marker=marker(1), markersize=3, linestyle="none"
            )
            right.set(title="residuals", ylabel="% of the loss", xscale="log")
            for axis in (left, right):
                axis.set_xlabel(_NAMES[form.extent])
                # Powers of ten would be typeset as formulas.
                axis.xaxis.set_major_formatter(lambda value, _: f"{value:.0e}".replace("e+", "e"))
            return with_print_colours(figure)


def _limits(found: FittedLaw) -> Iterator[str]:
    for name, limit in found.at_limit.items():
        yield f"{name} is at {limit:g}, a limit of this law. If a value beyond it is possible, choose another law."


def _unidentified(found: FittedLaw) -> Iterator[str]:
    """Yield which constants the points do not identify, and why."""
    if found.deciding:
        yield (
            f"The points do not identify {', '.join(found.deciding)}, which decides what the other constants mean. So "
            "no constant is known on its own."
        )
    elif found.unidentified:
        yield (
            f"The points do not identify {', '.join(found.unidentified)}: an interval, by the bootstrap or by the "
            "curvature of the fit, spans more than a factor of two, contains zero, or has no end."
        )


def _trunks(found: FittedLaw) -> Iterator[str]:
    """Yield a sentence if points are of runs that share their first steps."""
    points = found.fit.points
    if points.trunk is not None:
        groups = int(points.drawn_together.max()) + 1
        yield (
            f"The {len(points)} points are of {groups} trunks or single runs. Points of one trunk err together, so the "
            "bootstrap draws trunks."
        )


def rising(columns: "Sequence[str]") -> Iterator[str]:
    """Yield a sentence if a fitted law rises with a quantity."""
    if columns:
        named = " and ".join(QUANTITIES[name] for name in columns)
        yield (
            f"The fitted loss rises with {named}, which no scaling law says. Look for runs that were trained "
            "differently."
        )


def _residuals(found: FittedLaw) -> Iterator[str]:
    """Yield sentences on points without scatter, and on one that is far from the law."""
    sizes, points = np.abs(found.fit.residuals), found.fit.points
    scatter = float(_NORMAL * np.median(sizes))
    if sizes.max() < _NO_SCATTER:
        yield "The points lie on the law, so intervals have no width. Losses of real runs scatter by 0.1 % or more."
    elif sizes.max() > _FAR_OFF * max(scatter, _NO_SCATTER):
        worst = int(np.argmax(sizes))
        yield (
            f"The point with {format_count(points.parameters[worst])} parameters, {format_count(points.tokens[worst])} "
            f"tokens and a loss of {points.loss[worst]:.4g} is {sizes[worst]:.1%} off the law, which is "
            f"{sizes[worst] / max(scatter, _NO_SCATTER):.0f} times the scatter. Check it, or leave it out."
        )


def _constants(found: FittedLaw) -> Table:
    """Return a row for each constant, with the columns that the fit has."""
    law, intervals = found.law, found.intervals
    columns = {"fitted": [f"{value:.5g}" for value in law.printed.values()]}
    columns["95 % interval"] = [_ends(intervals[name]) for name in law.printed]
    if found.profile is not None:
        columns[f"{found.profile.likelihood} profile"] = [_ends(found.profile.intervals[name]) for name in law.printed]
    if found.undropped is not None:
        columns[f"all {len(found.undropped.points)} points"] = [
            f"{value:.5g}" for value in found.undropped.law.printed.values()
        ]
    source = next(iter(law.form.published), None)
    if source is not None:
        columns[source] = [f"{value:.5g}" for value in law.form.published[source]]
    rows = [(name, *(texts[place] for texts in columns.values())) for place, name in enumerate(law.printed)]
    return Table.of(("constant", *columns), rows, columns)


def _ends(ends: tuple[float | None, float | None]) -> str:
    low, high = ("open" if end is None or not np.isfinite(end) else f"{end:.4g}" for end in ends)
    return f"{low} to {high}"


def _likelihood(found: FittedLaw) -> str:
    """Return what the profile assumes, and which density the residuals follow better."""
    assert found.profile is not None
    likely = found.profile.log_likelihoods
    better = max(likely, key=lambda name: likely[name])
    figures = ", ".join(f"{name} {value:.1f}" for name, value in likely.items())
    return (
        f"The profile is of the likelihood {found.profile.likelihood} on log losses. Log-likelihoods are {figures}, so "
        f"residuals follow {better} better."
    )


def _optimum(found: FittedLaw) -> Iterator[str]:
    flops, form = float(found.fit.points.flops.max()), found.law.form
    best = form.optimum(found.law.values, flops)
    if form.may_have_optimum and not found.supports_optimum:
        yield "No best size is near the sizes of these points, so they do not show how large a model should be."
    elif best is not None:
        parameters, tokens = best
        yield (
            f"The optimum of the largest compute, {format_flops(flops)}, is {format_count(parameters)} parameters and "
            f"{format_count(tokens)} tokens, {tokens / parameters:.3g} for each."
        )


def _tested(tested: "HeldOut", found: FittedLaw) -> str:
    unit = QUANTITIES[found.law.form.extent]
    fitted = "Points" if tested.fitted == len(found.fit.points) else f"For a test, the {tested.fitted} points"
    return (
        f"{fitted} below {tested.below:.3g} {unit} were fitted. The loss of the other {tested.count} is "
        f"predicted with a mean absolute error of {tested.mean_error:.2%}. Their 95 % intervals are ±"
        f"{tested.half_width:.1%} wide in the mean, and {tested.covered:.0%} lie inside. Without the error of "
        f"extrapolation {tested.covered_if_law_is_true:.0%} would."
    )


def _beyond(found: FittedLaw) -> str:
    beyond, extent = found.extrapolation, found.law.form.extent
    if beyond is None:
        return (
            "The points are too few to measure how errors grow beyond them. So the intervals of losses take the law "
            "as true, and are too narrow there."
        )
    return (
        f"Beyond {beyond.fitted_flops:.3g} {QUANTITIES[extent]}, intervals of losses grow with the errors of "
        f"{beyond.origins} hold-outs within these points: to ±{_spread(beyond, 10):.1%} of the loss at 10 times as "
        f"much, and ±{_spread(beyond, 100):.1%} at 100 times."
    )


def _spread(beyond: "Extrapolation", times: float) -> float:
    """Return the relative half width of an interval at so many times the fitted compute."""
    return float(np.expm1(beyond.half_widths(np.array([beyond.fitted_flops * times])))[0])


def _values(found: FittedLaw) -> dict[str, Any]:
    form, tested, profile = found.law.form, found.held_out, found.profile
    return {
        "law": form.name,
        "formula": form.formula,
        "counts": form.counts,
        "source": form.source,
        "points": len(found.fit.points),
        "dropped": found.dropped,
        "objective": found.fit.objective,
        "constants": found.law.printed,
        "intervals": {name: list(ends) for name, ends in found.intervals.items()},
        "profile": None
        if profile is None
        else {
            "likelihood": profile.likelihood,
            "intervals": {name: list(ends) for name, ends in profile.intervals.items()},
            "log_likelihoods": profile.log_likelihoods,
        },
        "unidentified": list(found.unidentified),
        "together": [list(pair) for pair in found.together],
        "all_points": None
        if found.undropped is None
        else {
            "points": len(found.undropped.points),
            "objective": found.undropped.objective,
            "constants": found.undropped.law.printed,
        },
        **accounting_values(found.accounting),
        "losses_by_byte": found.by_byte or None,
        "draws": len(found.draws),
        "extrapolation": None if found.extrapolation is None else vars(found.extrapolation),
        "held_out": None if tested is None else vars(tested),
    }


_WIDTH = 9.6
_FURTHER = 10.0
"""Multiple of the largest fitted compute up to which the law's optimum is drawn, dotted."""
_NAMES = {"flops": "training FLOPs", "parameters": "parameters", "tokens": "training tokens"}
