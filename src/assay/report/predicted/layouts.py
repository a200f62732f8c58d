"""Text on a layout over several GPUs: the recommended one, the price of less memory, the next ones, and the basis."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from assay.report.blocks import Block, Facts, Table
from assay.report.predicted.training import hours_words, money_words, training_words
from assay.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from assay.advise.placed import Layout, LayoutAdvice
    from assay.estimator.cost import Training


_PLANNED = (
    "{0.candidates:,} layouts with their techniques were planned, and {0.refused:,} more were refused. All of this is "
    "predicted from datasheets, and nothing was measured. Plans leave out overlap, stragglers, the update and memory "
    "traffic; small models take longer. Buffers and gathered weights take gigabytes more. The errors of plans are in "
    "docs/numbers.md."
)
_REPLICATED = (
    "No plan covers this model, so tensor and pipeline groups were not searched. {0.candidates:,} kinds of data "
    "parallelism with their techniques were predicted, by the ledger of a rank, by kernels and by datasheets of links; "
    "nothing was measured. Buffers of NCCL take up to a gigabyte more."
)


def layout_report(found: "LayoutAdvice", training: "Training | None" = None) -> Iterator[Block]:
    """Yield the answer in a sentence, its figures, its tables of layouts, and its caveats."""
    yield headline(found, training)
    yield Facts.of(_answer(found, training))
    yield _table("layout", found.frontier)
    if found.runners_up:
        yield _table("next layout", found.runners_up)
    yield from (f"Caution: {one}." for one in found.warnings)
    yield _PLANNED.format(found) if found.planned else _REPLICATED.format(found)
    if found.sources:
        yield f"Changes of the loss were measured on like runs: {'; '.join(found.sources)}."
    if found.lossy:
        yield f"Left out, because no like measurement or published training keeps their loss: {', '.join(found.lossy)}."
    if found.unplanned:
        yield f"Left out, because no plan over several ranks has them: {', '.join(found.unplanned)}."


def headline(found: "LayoutAdvice", training: "Training | None") -> str:
    """Return the sentence that a colleague would say first."""
    best, run = found.recommended, found.run
    batch = f"{run.sequences_per_step:,} sequences of {run.model.context_length:,} tokens"
    needs = f"{format_bytes(best.need_bytes)} on the fullest GPU, of {format_bytes(found.budget_bytes)}"
    takes = "" if training is None else f", and {training_words(training)}"
    return f"{found.configuration} fits {found.cluster} with {best.title}: {batch} need {needs}{takes}."


def _answer(found: "LayoutAdvice", training: "Training | None") -> Iterator[tuple[str, str]]:
    best, time = found.recommended, found.step_time
    yield "turn on", best.title
    yield "layout", f"{best.mesh}, on {found.cluster}"
    if found.planned:
        yield "plan it", found.command
    yield "train it", found.train_command or "no command of assay starts a run over several nodes"
    speed = f"{format_count(best.tokens_per_second)} tokens/s, {format_seconds(best.seconds)} a step"
    yield "at best, by the plan" if found.planned else "speed", f"{speed}, {best.mfu:.1%} MFU"
    low, high = (format_seconds(one * time.seconds) for one in time.spread or (1, 1))
    basis = "the plan and its errors" if time.margin is None else "kernels of a rank, and its collectives"
    yield "step time", f"{low} to {high}, by {basis}"
    budget = format_bytes(found.budget_bytes)
    what = "of tensors on the fullest rank" if found.planned else "in use on each rank"
    yield "memory", f"{format_bytes(best.need_bytes)} {what}, of {budget}"
    waits = f"{best.communication_share:.1%} in collectives, {best.idle_share:.1%} idle in the pipeline"
    yield "waiting", f"{waits}, of a step without overlap"
    yield "loss", best.numerics.value
    if training is not None:
        yield "training", f"{format_count(training.tokens)} tokens take {hours_words(training)}"
        yield "hours of one GPU", " to ".join(format_count(one) for one in training.device_hours)
        if training.price is not None:
            yield "money", f"{money_words(training)}, at {training.price:g} for an hour of one GPU"


def _table(heading: str, placed: "Iterable[Layout]") -> Table:
    rows = [
        (str(one.mesh), one.title, format_count(one.tokens_per_second), format_bytes(one.need_bytes)) for one in placed
    ]
    return Table.of((heading, "techniques", "tokens/s", "needs"), rows, ("tokens/s", "needs"))
