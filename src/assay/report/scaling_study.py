"""A study of scaling as plain rows: its plan before it runs, its answer, and its last lines."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.records.study import StudyEnding
from assay.report.kit.blocks import Block, Facts, Table
from assay.report.kit.view import Shown, view
from assay.report.laws import FitView
from assay.report.saved_work import BranchSavingView
from assay.studies.isoflop_budget import MOST_EPOCHS
from assay.studies.isoflop_plan import ScalingPlan
from assay.studies.isoflop_sizes import FLOPS_PER_PARAMETER_AND_TOKEN, counts
from assay.studies.kinds.isoflop import AS_RULED, BUDGET, RATE, WIDTH
from assay.units import format_count, format_flops, format_percent, format_power, format_seconds

if TYPE_CHECKING:
    from assay.config.run import ResolvedRun
    from assay.scaling.approaches import Parabola
    from assay.scaling.scaling_study import RateCheck, ScalingAnswer, StudyPoint
    from assay.studies.isoflop_budget import PlannedRun

_COLUMNS = ("run", "parameters", "tokens", "epochs", "steps", "FLOPs", "process")


class ScalingPlanView(Shown[ScalingPlan]):
    """A study of scaling before it runs, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the whole, a table of the runs in their order, and sentences on what was chosen."""
        plan = self.found
        study = plan.study
        flops = sum(_flops(plan, one) * (1 - one.shared / one.steps) for one in plan.runs)
        yield Facts.of(
            (
                ("study", study.name),
                ("base", study.base),
                ("runs", f"{len(plan.runs)}, two of them equal at each seed; {plan.here.slots} beside each other"),
                ("FLOPs", f"{format_flops(flops)} in all"),
                ("time", f"{format_seconds(plan.seconds)} predicted, {format_seconds(plan.budget_seconds)} given"),
                *_branch_facts(plan),
            )
        )
        yield Table.of(_COLUMNS, (_row(plan, one) for one in _rows(plan)), _COLUMNS[1:], spare=("steps",))
        yield from study.notes()
        yield (
            f"Sizes are chosen around {plan.wanted.tokens_per_parameter:g} tokens for each parameter. The learning "
            f"rate of a run is the base's × (width / base's width)^{study.width_exponent:g} × (steps / base's "
            f"steps)^{study.steps_exponent:g}. Half and twice of it are tried at {study.check_rate_at} FLOPs."
        )
        yield (
            f"The text has {format_count(plan.here.train_tokens)} tokens. No run sees them more than {MOST_EPOCHS:g} "
            "times, up to which repeated text is nearly as good as new text (Muennighoff et al. 2023)."
        )
        if study.held_out.flops * 1.1 > _most(plan):
            yield "The text limits this study, and not the time. More text, or a larger model, would use the rest."

    def values(self) -> dict[str, Any]:
        """Return the same figures for programs."""
        plan = self.found
        study = plan.study
        return {
            "name": study.name,
            "runs": {budget: list(widths) for budget, widths in study.runs.items()},
            "held_out": study.held_out.model_dump(),
            "count": study.count,
            "seeds": study.seeds,
            "seconds": plan.seconds,
            "slots": plan.here.slots,
            "step_seconds": dict(plan.here.step_seconds),
            "train_tokens": plan.here.train_tokens,
            "separate_seconds": plan.separate_seconds,
            "rows": [
                {
                    **one.levels,
                    "tokens": _tokens(plan, one),
                    "flops": _flops(plan, one),
                    "seconds": one.seconds,
                    "shared_steps": one.shared,
                }
                for one in _rows(plan)
            ],
        }


def _rows(plan: ScalingPlan) -> "Iterator[PlannedRun]":
    """Yield the rows of the design: the runs of the first seed, without the control's second one."""
    yield from (one for at, one in enumerate(plan.runs) if one.seed == 0 and at != 1)


def _branch_facts(plan: ScalingPlan) -> Iterator[tuple[str, str]]:
    """Yield what decay branches save against separate runs, as predicted."""
    branches = [one for one in plan.runs if one.shared]
    if not branches:
        return
    separate = sum(_flops(plan, one) for one in plan.runs)
    saved = sum(_flops(plan, one) * one.shared / one.steps for one in branches)
    steps, seconds = sum(one.shared for one in branches), sum(one.saved_seconds for one in branches)
    less = f"{steps:,} steps, {format_flops(saved)} ({saved / separate:.0%}) and {format_seconds(seconds)} of processes"
    yield "branches", f"{len(branches)} runs begin with steps of a longer one. This saves {less}"
    yield "separate runs", f"{format_seconds(plan.separate_seconds)} predicted"


def _row(plan: ScalingPlan, one: "PlannedRun") -> tuple[str, ...]:
    study, size, levels = plan.study, _size(plan, one), one.levels
    kind = "held out" if levels[BUDGET] not in study.runs else "fitted" if levels[RATE] == AS_RULED else "rate check"
    rate = "" if levels[RATE] == AS_RULED else f", {levels[RATE]} × rate"
    return (
        f"{kind}: {size.model.n_layer} × {size.model.n_embd}{rate}",
        format_count(counts(size.model)[study.count]),
        format_count(_tokens(plan, one)),
        f"{_tokens(plan, one) / plan.here.train_tokens:.2f}",
        str(one.steps),
        format_power(_flops(plan, one)),
        format_seconds(one.seconds),
    )


def _size(plan: ScalingPlan, one: "PlannedRun") -> "ResolvedRun":
    return plan.here.sizes[int(one.levels[WIDTH])]


def _tokens(plan: ScalingPlan, one: "PlannedRun") -> int:
    return one.steps * _size(plan, one).tokens_per_step


def _flops(plan: ScalingPlan, one: "PlannedRun") -> float:
    """Return the FLOPs of a run that trains all of its steps itself."""
    parameters = counts(_size(plan, one).model)[plan.study.count]
    return float(FLOPS_PER_PARAMETER_AND_TOKEN * parameters * _tokens(plan, one))


def _most(plan: ScalingPlan) -> float:
    """Return the FLOPs of the largest size on all the tokens that are allowed."""
    largest = max(counts(size.model)[plan.study.count] for size in plan.here.sizes.values())
    return float(FLOPS_PER_PARAMETER_AND_TOKEN * largest * MOST_EPOCHS * plan.here.train_tokens)


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
    yield from FitView(found.law).blocks()


def headline(found: "ScalingAnswer") -> str:
    """Return the first sentence: how well the law predicted the held-out run, and from how much less compute."""
    if not found.predictions:
        return f"A law is fitted to {len(found.fitted)} runs; no held-out run says yet whether it predicts larger ones."
    worst = max(found.predictions, key=lambda one: abs(one.error))
    times = worst.point.flops / max(one.flops for one in found.fitted)
    whether = "inside" if all(one.inside for one in found.predictions) else "but outside of"
    said = f"The law of the small runs predicted a run with {times:.3g} × their compute"
    return f"{said} within {100 * abs(worst.error):.2g} %, {whether} its interval."


def verdict(found: "ScalingAnswer") -> Iterator[str]:
    """Yield the answer in plain sentences: the headline, each held-out run, and whether the rule's rates are good."""
    yield headline(found)
    for one in found.predictions:
        yield (
            f"The run of {one.point.layers} layers × {one.point.width} was predicted to reach {one.loss:.4f} and "
            f"reached {one.point.loss:.4f}."
        )
    if found.rates and all(one.cost == 0 for one in found.rates):
        where = f"all {len(found.rates)} tested sizes" if len(found.rates) > 1 else "the tested size"
        yield f"The rule's learning rate is better than half and twice of it at {where}."
    else:
        yield from (_rate_verdict(one, found.record.loss_margin) for one in found.rates)
    if found.saving is not None:
        yield BranchSavingView(found.saving).sentences
    yield from found.record.doubts


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
    if again := [one for one in found.points if one.epochs is not None and one.epochs > _MOST_EPOCHS]:
        yield (
            f"{_named(again)} saw the text more than {_MOST_EPOCHS:g} times. Such a run learns less than the law says "
            "(Muennighoff et al. 2023)."
        )
    if short := [one for one in found.fitted if one.steps < _LEAST_STEPS]:
        yield f"{_named(short)} trained for fewer than {_LEAST_STEPS} steps, which is too short for a law."


def _named(points: "list[StudyPoint]") -> str:
    return ", ".join(one.label for one in points)


def answer_values(found: "ScalingAnswer") -> dict[str, Any]:
    """Return the same figures for programs."""
    return {
        "study": found.record.id,
        "law": FitView(found.law).values(),
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
        "isoflop": None if found.isoflop is None else view(found.isoflop).values(),
        "rates": [{"width": one.width, "losses": dict(one.losses), "cost": one.cost} for one in found.rates],
        "points": [vars(one) for one in found.points],
        "unfinished": list(found.unfinished),
        "doubts": list(found.record.doubts),
        "saving": None if found.saving is None else BranchSavingView(found.saving).values(),
    }


def _schedule(found: "ScalingAnswer") -> str:
    """Return how the learning rate goes in every run."""
    if found.saving is None:
        falls = "a cosine" if found.record.base.training.schedule == "cosine" else "a constant rate with a linear fall"
        return f"warm-up over an equal share of the steps, then {falls} that ends with each run."
    shared = "The runs of a size at one seed share all steps before, and have the rate of the mean of their steps."
    return f"warm-up, then a constant rate that falls linearly at the end of each run. {shared}"


_LARGER = 10
"""Factor from the largest run to the budget of the suggested command, as from the fitted runs to the held-out one."""


def closing(found: "ScalingAnswer") -> Iterator[tuple[str, str]]:
    """Yield (label, text) of the last lines."""
    yield "result", " ".join(verdict(found))
    yield "against", "; ".join(_against(found))
    yield from (("next", hint) for hint in _hints(found))


def _against(found: "ScalingAnswer") -> Iterator[str]:
    """Yield the fitted runs, from which everything is predicted, and the published growth of the best size."""
    flops, lowest = [one.flops for one in found.fitted], min(found.fitted, key=lambda one: one.loss)
    yield (
        f"{len(flops)} fitted runs of {format_power(min(flops))} to {format_power(max(flops))} FLOPs, whose lowest "
        f"loss is {lowest.loss:.4f}"
    )
    if found.isoflop is not None:
        here = found.isoflop.optima.size.exponent
        yield f"the best size grows as C^{here:.2f} here, and as C^{HOFFMANN_EXPONENT:.2f} in Hoffmann et al. 2022"


def _hints(found: "ScalingAnswer") -> Iterator[str]:
    study = found.record.id
    if found.record.ending is not StudyEnding.COMPLETE:
        yield f"assay study resume {study}    does the runs that have no result"
    flops = f"{_LARGER * max(one.flops for one in found.points):.2g}".replace("e+", "e")
    yield f"assay scaling optimal --flops {flops} --points {study}    the best size for {_LARGER} times the compute"
    yield f"assay scaling points {study} > points.csv    the runs, for assay scaling fit"


def meanings(found: "ScalingAnswer") -> list[tuple[str, str]]:
    """Return the name of each number with how it is made."""
    record = found.record
    evaluated = [one.result for one in record.cells if one.result.loss.val_targets]
    targets = f"{evaluated[0].loss.val_targets:,} of {evaluated[0].loss.val_split_targets:,}" if evaluated else "some"
    error = max((one.loss.val_standard_error or 0.0 for one in evaluated), default=0.0)
    counted = (
        "every distinct weight; the tied embedding counts once"
        if all(one.parameters == one.total for one in found.points)
        else "all weights but the embeddings of tokens and positions"
    )
    return [
        ("parameters N", f"{counted}. The points have both counts."),
        ("tokens D", "steps × tokens of a step. A run may see its text several times; epochs say how often."),
        ("FLOPs C", "6·N·D. The points also have FLOPs operator by operator, as the estimator counts them."),
        (
            "loss",
            f"mean over {targets} held-out tokens after the last step, the same for every run. As an estimate for "
            f"all of them it has a standard error of at most {error:.4f}. All runs share this error, so it "
            "moves their losses together, and hardly their law.",
        ),
        (
            "law",
            f"L = {found.law.law.form.formula}, by Huber's loss of log L with δ = {found.law.fit.delta:g}, on the "
            "fitted runs only.",
        ),
        (
            "95 % interval",
            "of one new loss: the bootstrap of the law with its residuals, and at least the errors of hold-outs among "
            "the fitted runs at this distance in compute.",
        ),
        (
            "learning rate",
            "the base's × a power of the width × a power of the steps. At one budget the smallest and the largest size "
            f"also train at half and at twice of it. Losses that differ by less than {record.loss_margin:g} nats count "
            "as the same.",
        ),
        ("schedule", _schedule(found)),
    ]
