"""Sections on the choice of a row: ranks, the Pareto front, losses within the margin, trades, a target, and limits."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from assay.analysis.choose.answer import LEAST_EVALUATIONS, RowTarget, Targets, targets
from assay.analysis.choose.criteria import (
    Criterion,
    LogChange,
    LossDifference,
    LossVerdict,
    loss_differences,
    memory_metric,
    time_change,
)
from assay.analysis.choose.ranking import (
    FormulaRanking,
    LossExchange,
    Ranked,
    RowRanking,
    Standing,
    Trade,
    exchanges,
    formula_ranking,
    frontier,
    ranking,
)
from assay.analysis.comparison import Comparison
from assay.analysis.metrics import metrics
from assay.analysis.metrics.standard import TRAIN_LOSS, VAL_LOSS, loss_of
from assay.analysis.row import COMMUNICATING, NEAR_MEMORY, NEAR_RATES, WAITING, RowLimit, limits
from assay.records.study import BASELINE
from assay.report.comparison.wording import change, in_nats, names, nats, plain, status, target_ratio, time_title
from assay.report.kit.blocks import UNKNOWN, Block, Table, quantity
from assay.report.study.sections import Section
from assay.report.study.sections.panels import front_panels
from assay.units import format_seconds, format_steps

if TYPE_CHECKING:
    from assay.report.kit.drawing import Panel
    from assay.report.study.view import StudyView


def _ranking_content(study: "StudyView") -> Iterator[Block]:
    if (own := study.of(ranking)) is not None:
        yield from _weighted(own, study.comparison)
    if (formula := study.of(formula_ranking)) is not None:
        yield from _published(formula, study.comparison.names)
    elif stated := study.comparison.record.ranking:
        yield f"The formula {stated} needs a loss, a time and a memory of every row; one is missing."


def _weighted(own: RowRanking, comparison: Comparison) -> Iterator[Block]:
    columns = ("rank", "row", "score", "interval")
    yield Table.of(columns, map(_ranking_row, own.rows), right=("rank", "score"))
    known = metrics()
    said = ", ".join(
        f"{known[name].title if name in known else name} {100 * weight:.0f} %" for name, weight in own.weights.items()
    )
    yield (
        f"The score is the weighted geometric mean of a row's improvements over the control ({said}): 1.10 is 10 % "
        "better. Each improvement is a ratio to the control's figure, so units do not matter. A rank such as 1–3 "
        "means that chance decides between them."
    )
    if context := comparison.record.context:
        yield f"Rows are ranked at each level of {names(context)}, against the control there."
    if any(one.interval is None for one in own.rows):
        yield "Rows without an interval have too few seeds or repeats, and share a rank with all others."
    if own.unranked:
        yield f"Not ranked, for want of a figure: {names([comparison.names.get(row, row) for row in own.unranked])}."


def _ranking_row(one: Ranked) -> tuple[str, ...]:
    rank = f"{one.best}" if one.best == one.worst else f"{one.best}–{one.worst}"
    ends = (
        ""
        if one.interval is None or one.row.treatment == BASELINE or one.interval == (1.0, 1.0)
        else f"[{one.interval[0]:.3f}, {one.interval[1]:.3f}]"
    )
    return rank, one.row.label, f"{one.score:.3f}", ends


def _published(found: FormulaRanking, labels: Mapping[str, str]) -> Iterator[Block]:
    scores = ((labels.get(name, name), f"{score:.3f}".replace("-", "−")) for name, score in found.scores)
    rows = ((str(rank), *one) for rank, one in enumerate(scores, 1))
    yield f"{found.formula.source}: {found.formula.text}."
    yield Table.of(("rank", "row", "figure"), rows, right=("rank", "figure"))
    yield found.formula.flaw


def _ranking_values(study: "StudyView") -> dict[str, Any]:
    own, formula = study.of(ranking), study.of(formula_ranking)
    rows = [{**one._asdict(), "row": one.row.treatment} for one in own.rows] if own else []
    return {
        "weights": dict(own.weights) if own else {},
        "rows": rows,
        "unranked": list(own.unranked) if own else [],
        "formula": study.comparison.record.ranking,
        "by_formula": [{"row": name, "figure": score} for name, score in formula.scores] if formula else [],
    }


RANKING = Section("ranking", "Ranking", _ranking_content, _ranking_values)


def _frontier_content(study: "StudyView") -> Iterator[Block]:
    comparison, found = study.comparison, study.of(frontier)
    if len(found.criteria) < 2:
        return
    titles = [_title(one) for one in found.criteria]
    rows = (
        (one.row.label, *(_text(criterion, one) for criterion in found.criteria), _place(one, comparison))
        for one in found.rows
    )
    yield Table.of(("row", *titles, "place"), rows, right=titles, spare=titles[::-1])
    yield (
        "A row is dominated if another is better in one of these figures and at least as good in the others. Times "
        "and memory that cannot be told apart count as the same, and losses within "
        f"{comparison.record.loss_margin:g}{in_nats(comparison)}. “By its figures” means that a difference has no "
        "interval, or is not shown."
    )


def _title(one: Criterion) -> str:
    return "all steps" if one.name == "time" else one.metric.title


def _text(criterion: Criterion, one: Standing) -> str:
    known = one.figures.get(criterion.name)
    return UNKNOWN if known is None else quantity(known, criterion.metric.unit)


def _place(one: Standing, comparison: Comparison) -> str:
    if not one.figures:
        return status(one.row) or "not measured"
    if one.on_front:
        return "on the front"
    better = names([comparison.names[row] for row in one.dominated_by], 1)
    return f"dominated by {better}{'' if one.sure else ', by its figures'}"


def _frontier_values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {
            "row": one.row.treatment,
            "status": one.row.status.value,
            "figures": dict(one.figures),
            "on_front": one.on_front,
            "dominated_by": list(one.dominated_by),
            "shown_by_intervals": one.sure,
        }
        for one in study.of(frontier).rows
    ]


def _panels(study: "StudyView") -> "tuple[Panel, ...]":
    return front_panels(study)


FRONTIER = Section(
    "pareto_front",
    "Rows that no other beats",
    _frontier_content,
    _frontier_values,
    _panels,
    "Lower left is better. Filled points are on the front, hollow ones are dominated. The front also counts the loss "
    "and the bytes communicated, where rows differ in them, so it is no line in this plane. Names without room are "
    "left out.",
    printed=False,
)


_BASES = {VAL_LOSS.name: "validation loss after the last step", TRAIN_LOSS.name: "training loss of the last step"}


def _equivalence_content(study: "StudyView") -> Iterator[Block]:
    comparison, found = study.comparison, study.of(loss_differences)
    margin = comparison.record.loss_margin
    if not found:
        return
    unit = in_nats(comparison)
    columns = ("row", time_title(comparison), f"loss{unit and ',' + unit}", "as good as the control?")
    rows = []
    for row in study.comparison.rows:
        if one := found.get(row.treatment):
            time = time_change(study.comparison, row)
            rows.append((row.label, change(time), nats(one), _verdict(one, time, margin)))
    yield Table.of(columns, rows, right=columns[1:3], spare=columns[1:2])
    yield (
        f"The loss is the {_BASES[loss_of(comparison.run).name]}. Losses within {margin:g}{unit} count as the same. "
        "That is shown if the whole interval of the difference lies within them; the intervals of all rows hold "
        "together."
    )


def _verdict(one: LossDifference, time: LogChange | None, margin: float) -> str:
    """Return the verdict in words; a row that is faster and not shown to be as good is called so."""
    but = "faster, but " if time is not None and time.sign < 0 and not one.verdict.as_good else ""
    return (
        but
        + {
            LossVerdict.EQUAL: "the same to the last bit",
            LossVerdict.BETTER: f"better by more than {margin:g}",
            LossVerdict.SAME: f"the same within {margin:g}",
            LossVerdict.NO_WORSE: "no worse",
            LossVerdict.WORSE: f"worse by more than {margin:g}",
            LossVerdict.UNKNOWN: "not shown to be as good" + (" (too few seeds)" if one.half is None else ""),
        }[one.verdict]
    )


def _equivalence_values(study: "StudyView") -> list[dict[str, Any]]:
    rows = {row.treatment: row for row in study.comparison.rows}
    return [
        {
            "row": name,
            "nats": one.nats,
            "interval": one.interval and list(one.interval),
            "margin": study.comparison.record.loss_margin,
            "verdict": one.verdict.value,
            "time": plain(time_change(study.comparison, rows[name])),
        }
        for name, one in study.of(loss_differences).items()
    ]


EQUIVALENCE = Section(
    "equivalence", "Losses: which are as good", _equivalence_content, _equivalence_values, printed=False
)


def _exchange_content(study: "StudyView") -> Iterator[Block]:
    found, memory = study.of(exchanges), memory_metric(study.comparison).title
    if not any(one.memory.trade.priced or one.time.trade.priced for one in found):
        return
    columns = (
        "row",
        "loss",
        memory,
        f"loss for {memory}",
        time_title(study.comparison),
        f"loss for {time_title(study.comparison)}",
    )
    rows = [
        (one.row.label, change(one.loss), change(one.memory.resource), _said(one.memory),
         change(one.time.resource), _said(one.time))
        for one in found
    ]  # fmt: skip
    yield Table.of(columns, rows, right=(columns[1], columns[2], columns[4]), spare=(columns[2], columns[4]))
    yield (
        "A rate is the change of the validation loss in percent for each percent of memory or time. It is given where "
        "one gets better and the other worse, and where both changes can be told from zero. Its range covers every "
        "pair of values of the two intervals."
    )


def _said(one: LossExchange) -> str:
    if one.rate is None or one.interval is None:
        return one.trade.value
    ends = "" if one.interval[0] == one.interval[1] else f" [{one.interval[0]:.2g}, {one.interval[1]:.2g}]"
    if one.trade is Trade.SAVES_FOR_LOSS:
        return f"{one.rate:.2g} %{ends} worse for each 1 % saved"
    return f"{one.rate:.2g} %{ends} better for each 1 % more"


def _exchange_values(study: "StudyView") -> list[dict[str, Any]]:
    return [
        {
            "row": one.row.treatment,
            "loss": plain(one.loss),
            "memory": _exchange_plain(one.memory),
            "time": _exchange_plain(one.time),
        }
        for one in study.of(exchanges)
    ]


def _exchange_plain(one: LossExchange) -> dict[str, Any]:
    return {**one._asdict(), "trade": one.trade.value, "resource": plain(one.resource)}


EXCHANGE = Section(
    "exchange_rates", "Loss for memory, loss for time", _exchange_content, _exchange_values, printed=False
)


def _target_content(study: "StudyView") -> Iterator[Block]:
    found = study.of(targets)
    if found is None or len(found.rows) < 2:
        return
    columns = ("row", "steps", "seconds of steps", "against the control")
    yield Table.of(columns, map(_target_row, found.rows), right=columns[1:3])
    yield f"The target is {_aim(study.comparison, found)}. {_basis(study.comparison, found)}"
    yield (
        "A run has reached the target at the first step from which its loss stays at or below it. Seconds are those "
        "of the optimizer steps until then, the first one included; start, evaluation and checkpoints are not. "
        "Intervals are over seeds."
    )


def _aim(comparison: Comparison, found: Targets) -> str:
    if found.target is not None:
        return f"a {found.basis} of {found.target:g}, as the study states"
    margin = f"{comparison.record.loss_margin:g}{in_nats(comparison)}"
    return f"the control's last {found.basis} at the same seed, plus {margin}: being as good as the control"


def _basis(comparison: Comparison, found: Targets) -> str:
    own = comparison.run.own_rows
    if own is not None and not own.validation:
        return (
            "There are no validation batches, so the training loss counts, averaged over the last "
            f"{format_steps(found.resolution)}. It lags behind by half of them."
        )
    if found.basis == "validation loss":
        return f"Runs were evaluated every {format_steps(found.resolution)}, so steps are known to within as many."
    return (
        f"Some run was evaluated fewer than {LEAST_EVALUATIONS} times, so the training loss counts, averaged over the "
        f"last {format_steps(found.resolution)}. It lags behind by half of them, and is no loss on held-out text; "
        "a smaller training.eval_interval gives one."
    )


def _target_row(one: RowTarget) -> tuple[str, ...]:
    seconds, steps = one.seconds, one.steps
    if one.censored:
        within = max(run.within for run in one.runs)
        missed = "not" if one.censored == len(one.runs) else f"{one.censored} of {len(one.runs)} runs not"
        return one.row.label, f"{missed} within {within}", UNKNOWN, "unknown: a run did not reach it"
    said = UNKNOWN if one.ratio is None else target_ratio(one.ratio)
    return one.row.label, f"{steps:.0f}", UNKNOWN if seconds is None else format_seconds(seconds), said


def _target_values(study: "StudyView") -> dict[str, Any]:
    found = study.of(targets)
    if found is None:
        return {}
    return {
        "basis": found.basis,
        "resolution_steps": found.resolution,
        "target": found.target,
        "rows": [
            {
                "row": one.row.treatment,
                "runs": [run._asdict() for run in one.runs],
                "not_reached": one.censored,
                "steps": one.steps,
                "seconds": one.seconds,
                "ratio": None if one.ratio is None else one.ratio.model_dump(mode="json"),
            }
            for one in found.rows
        ],
    }


TARGET = Section("target_loss", "Time to the target loss", _target_content, _target_values, printed=False)


_SHARES = ("memory", "data", "communication", "compute")


def _limits_content(study: "StudyView") -> Iterator[Block]:
    found = study.of(limits)
    known = [share for share in _SHARES if any(getattr(one, share) is not None for one in found)]
    if not known:
        return
    titles = {
        "memory": "of free memory",
        "data": "waits for data",
        "communication": "communicates",
        "compute": "predicted / measured",
    }
    columns = ("row", "limit", *(titles[share] for share in known))
    rows = ((one.row.label, one.limit.value, *(_share(getattr(one, share)) for share in known)) for one in found)
    yield Table.of(columns, rows, right=columns[2:])
    bounds = [f"{100 * bound:.0f} %" for bound in (NEAR_MEMORY, WAITING, COMMUNICATING, NEAR_RATES)]
    yield (
        f"Memory binds from {bounds[0]} of the memory that was free before the study, data from {bounds[1]} of a step "
        f"spent waiting for a batch, communication from {bounds[2]}, and compute if the step time predicted from the "
        f"machine's measured rates is at least {bounds[3]} of the measured one. The first of these is named. Otherwise "
        "the limit is not known: overheads that no record separates take the time."
    )


def _share(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f} %"


def _limits_values(study: "StudyView") -> list[dict[str, Any]]:
    return [_limits_plain(one) for one in study.of(limits)]


def _limits_plain(one: RowLimit) -> dict[str, Any]:
    shares = {f"{share}_share": getattr(one, share) for share in _SHARES}
    return {"row": one.row.treatment, "limit": one.limit.value, **shares}


LIMITS = Section("limits", "The limit that binds", _limits_content, _limits_values, printed=False)
