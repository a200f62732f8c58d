"""The answer of a study of scaling: the verdict in sentences, and tables of what it rests on."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.report.blocks import Block, Table
from assay.report.predicted.frontiers import isoflop_values
from assay.report.predicted.scaling import fit_report, fit_values
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN
from assay.units import format_count, format_percent, format_power

if TYPE_CHECKING:
    from assay.scaling.approaches.isoflop import Parabola
    from assay.scaling.studied.answer import HeldOutPrediction, RateCheck, ScalingAnswer
    from assay.scaling.studied.points import StudyPoint

HOFFMANN_EXPONENT = 0.49
"""Exponent of the best size by compute, by approach 2 of Hoffmann et al. 2022."""

_MOST_EPOCHS = 4.0
_LEAST_STEPS = 200


def answer_report(found: "ScalingAnswer") -> Iterator[Block]:
    """Yield the verdict, the minima of the budgets, the test of the rates, every run, and the law."""
    yield from verdict(found)
    yield from minima_report(found)
    yield from rates_table(found)
    yield runs_table(found)
    yield from cautions(found)
    yield from fit_report(found.law)


def verdict(found: "ScalingAnswer") -> Iterator[str]:
    """Yield plain sentences: whether the law predicted the held-out run, and from how much less compute."""
    if not found.predictions:
        yield (
            f"A law is fitted to {len(found.fitted)} runs. No held-out run has a loss yet, so nothing says whether it "
            "predicts larger runs."
        )
    yield from (_verdict(one, found) for one in found.predictions)
    for one in found.rates:
        yield _rate_verdict(one, found.record.loss_margin)


def _verdict(one: "HeldOutPrediction", found: "ScalingAnswer") -> str:
    most = max(each.flops for each in found.fitted)
    times = one.point.flops / most
    whether = "inside" if one.inside else "outside"
    return (
        f"From {len(found.fitted)} runs with at most {format_power(most)} FLOPs, the law predicts a loss of "
        f"{one.loss:.4f} [{one.low:.4f}, {one.high:.4f}] for the run of {one.point.layers} layers × {one.point.width} "
        f"with {times:.3g} times that compute. It reached {one.point.loss:.4f}. The error is "
        f"{format_percent(one.error)}, and the loss lies {whether} the 95 % interval."
    )


def _rate_verdict(one: "RateCheck", margin: float) -> str:
    best = min(one.losses, key=lambda each: each[1])[0]
    size = f"At {one.budget} FLOPs and width {one.width}"
    if one.cost == 0:
        return f"{size}, the rule's learning rate is better than half and twice of it."
    well = "within" if one.cost <= margin else "not within"
    return (
        f"{size}, {best} × the rule's learning rate is better by {one.cost:.4f} nats, which is {well} the margin of "
        f"{margin:g}."
    )


def prediction_table(found: "ScalingAnswer") -> Iterator[Block]:
    """Yield the predicted and the measured loss of each held-out run."""
    columns = ("run", "predicted", "95 % interval", "measured", "error", "inside")
    rows = (
        (
            f"{one.point.layers} × {one.point.width}, seed {one.point.seed}",
            f"{one.loss:.4f}",
            f"{one.low:.4f} to {one.high:.4f}",
            f"{one.point.loss:.4f}",
            format_percent(one.error),
            "yes" if one.inside else "no",
        )
        for one in found.predictions
    )
    if found.predictions:
        yield Table.of(columns, rows, columns[1:])


def minima_report(found: "ScalingAnswer") -> Iterator[Block]:
    """Yield the minimum of each budget's parabola with the law's optimum, and the power laws through the minima."""
    if found.isoflop is None:
        yield "Fewer than two budgets have their lowest loss within their sizes, so no power law of the best size."
        return
    columns = ("budget", "sizes", "best size", "tokens per parameter", "loss there", "the law's best size")
    yield Table.of(columns, (_minimum(one, found) for one in found.isoflop.parabolas), columns[1:])
    size = found.isoflop.optima.size
    ends = "" if size.interval is None else " [{:.2f}, {:.2f}]".format(*size.interval)
    yield (
        f"The best size grows as C^{size.exponent:.2f}{ends} through these minima; in Hoffmann et al. 2022 it is "
        f"C^{HOFFMANN_EXPONENT:.2f}."
    )
    yield from found.isoflop.optima.warnings


def _minimum(one: "Parabola", found: "ScalingAnswer") -> tuple[str, ...]:
    best, by_law = one.inside, found.law.law.form.optimum(found.law.law.values, one.flops)
    return (
        f"{format_power(one.flops)} FLOPs",
        f"{format_count(one.sizes.min())} to {format_count(one.sizes.max())}",
        "–" if best is None else format_count(best),
        "–" if best is None else f"{one.flops / FLOPS_PER_PARAMETER_AND_TOKEN / best**2:.3g}",
        "–" if best is None else f"{float(one.loss(best)):.4f}",
        "–" if by_law is None else format_count(by_law[0]),
    )


def rates_table(found: "ScalingAnswer") -> Iterator[Block]:
    """Yield the losses at half, once and twice the rule's learning rate."""
    columns = ("size", "½ × rate", "rate of the rule", "2 × rate")
    if found.rates:
        yield Table.of(columns, map(_rates, found.rates), columns[1:])


def _rates(one: "RateCheck") -> tuple[str, ...]:
    losses = dict(one.losses)
    at = (losses.get(rate) for rate in ("1/2", "1", "2"))
    return f"width {one.width}, {one.budget} FLOPs", *("–" if loss is None else f"{loss:.4f}" for loss in at)


def runs_table(found: "ScalingAnswer") -> Table:
    """Return every run with its loss, the law's, and the difference."""
    columns = ("run", "role", "parameters", "tokens", "epochs", "FLOPs", "loss", "law", "loss over law")
    spare = ("epochs", "role")
    return Table.of(columns, (_run(one, found) for one in found.points), columns[2:], spare=spare)


def _run(one: "StudyPoint", found: "ScalingAnswer") -> tuple[str, ...]:
    law = float(found.law.law.loss(one.parameters, one.tokens))
    rate = "" if one.role != "rate" else f", {one.rate} × rate"
    return (
        f"{one.layers} × {one.width}{rate}",
        one.role,
        format_count(one.parameters),
        format_count(one.tokens),
        "–" if one.epochs is None else f"{one.epochs:.2f}",
        format_power(one.flops),
        f"{one.loss:.4f}",
        f"{law:.4f}",
        format_percent(one.loss / law - 1),
    )


def cautions(found: "ScalingAnswer") -> Iterator[str]:
    """Yield sentences on runs that are missing, too short, or repeat their text too often."""
    if found.unfinished:
        yield f"Without a loss, and in no fit: {', '.join(found.unfinished)}."
    again = [one for one in found.points if one.epochs is not None and one.epochs > _MOST_EPOCHS]
    if again:
        yield (
            f"{_named(again)} saw the text more than {_MOST_EPOCHS:g} times. Such a run learns less than the law says "
            "(Muennighoff et al. 2023)."
        )
    short = [one for one in found.fitted if one.steps < _LEAST_STEPS]
    if short:
        yield f"{_named(short)} trained for fewer than {_LEAST_STEPS} steps, which is too short for a law."


def _named(points: "list[StudyPoint]") -> str:
    return ", ".join(one.label for one in points)


def answer_values(found: "ScalingAnswer") -> dict[str, Any]:
    """Return the same figures for programs."""
    return {
        "study": found.record.id,
        "law": fit_values(found.law),
        "predictions": [
            {
                "run": one.point.label,
                "measured": one.point.loss,
                "predicted": one.loss,
                "interval": [one.low, one.high],
                "error": one.error,
                "inside": one.inside,
            }
            for one in found.predictions
        ],
        "isoflop": None if found.isoflop is None else isoflop_values(found.isoflop),
        "rates": [{"width": one.width, "losses": dict(one.losses), "cost": one.cost} for one in found.rates],
        "points": [vars(one) for one in found.points],
        "unfinished": list(found.unfinished),
    }
