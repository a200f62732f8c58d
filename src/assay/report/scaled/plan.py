"""The plan of a study of scaling: what it takes, and every run with its size, tokens and FLOPs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.report.blocks import Block, Facts, Table
from assay.studies.isoflop.budget import MOST_EPOCHS, cells_of, seconds_of
from assay.studies.isoflop.sizes import FLOPS_PER_PARAMETER_AND_TOKEN, counts
from assay.studies.kinds.isoflop import AS_RULED, BUDGET, RATE, WIDTH
from assay.units import format_count, format_flops, format_power, format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.studies.isoflop.plan import ScalingPlan

_COLUMNS = ("run", "parameters", "tokens", "epochs", "steps", "FLOPs", "process")


def plan_report(plan: "ScalingPlan") -> Iterator[Block]:
    """Yield the whole, a table of the runs in their order, and sentences on what was chosen."""
    study = plan.study
    rows, every = list(study.combinations()), cells_of(study)
    yield Facts.of(
        (
            ("study", study.name),
            ("base", study.base),
            ("runs", f"{len(every)}, two of them equal at each seed; {plan.here.slots} beside each other"),
            ("FLOPs", f"{format_flops(sum(_flops(plan, one) for one in every))} in all"),
            ("time", f"{format_seconds(plan.seconds)} predicted, {format_seconds(plan.budget_seconds)} given"),
        )
    )
    yield Table.of(_COLUMNS, (_row(plan, one) for one in rows), _COLUMNS[1:], spare=("steps",))
    yield from study.notes()
    yield (
        f"Sizes are chosen around {plan.wanted.tokens_per_parameter:g} tokens for each parameter. The learning rate of "
        f"a run is the base's × (width / base's width)^{study.width_exponent:g} × (steps / base's steps)"
        f"^{study.steps_exponent:g}. Half and twice of it are tried at "
        f"{study.check_rate_at} FLOPs."
    )
    yield (
        f"The text has {format_count(plan.here.train_tokens)} tokens. No run sees them more than {MOST_EPOCHS:g} "
        "times, up to which repeated text is nearly as good as new text (Muennighoff et al. 2023)."
    )
    if study.held_out.flops * 1.1 > _most(plan):
        yield "The text limits this study, and not the time. More text, or a larger model, would use the rest."


def plan_values(plan: "ScalingPlan") -> dict[str, Any]:
    """Return the same figures for programs."""
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
        "rows": [
            {**one, "tokens": _tokens(plan, one), "flops": _flops(plan, one), "seconds": _seconds(plan, one)}
            for one in study.combinations()
        ],
    }


def _row(plan: "ScalingPlan", levels: "Mapping[str, str]") -> tuple[str, ...]:
    study, size = plan.study, plan.here.sizes[int(levels[WIDTH])]
    kind = "held out" if levels[BUDGET] not in study.runs else "fitted" if levels[RATE] == AS_RULED else "rate check"
    rate = "" if levels[RATE] == AS_RULED else f", {levels[RATE]} × rate"
    return (
        f"{kind}: {size.model.n_layer} × {size.model.n_embd}{rate}",
        format_count(counts(size.model)[study.count]),
        format_count(_tokens(plan, levels)),
        f"{_tokens(plan, levels) / plan.here.train_tokens:.2f}",
        str(study.steps(size, levels[BUDGET])),
        format_power(_flops(plan, levels)),
        format_seconds(_seconds(plan, levels)),
    )


def _tokens(plan: "ScalingPlan", levels: "Mapping[str, str]") -> int:
    size = plan.here.sizes[int(levels[WIDTH])]
    return plan.study.steps(size, levels[BUDGET]) * size.tokens_per_step


def _flops(plan: "ScalingPlan", levels: "Mapping[str, str]") -> float:
    size = plan.here.sizes[int(levels[WIDTH])]
    return float(FLOPS_PER_PARAMETER_AND_TOKEN * counts(size.model)[plan.study.count] * _tokens(plan, levels))


def _seconds(plan: "ScalingPlan", levels: "Mapping[str, str]") -> float:
    return seconds_of(plan.study, levels, plan.wanted, plan.limits)


def _most(plan: "ScalingPlan") -> float:
    """Return the FLOPs of the largest size on all the tokens that are allowed."""
    largest = max(counts(size.model)[plan.study.count] for size in plan.here.sizes.values())
    return float(FLOPS_PER_PARAMETER_AND_TOKEN * largest * MOST_EPOCHS * plan.here.train_tokens)
