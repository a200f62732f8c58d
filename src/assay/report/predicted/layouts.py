"""Text on a layout over several GPUs: the recommended one, the price of less memory, the next ones, and the basis."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from assay.report.blocks import Block, Facts, Table
from assay.report.plan import days
from assay.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from assay.advise.placed import LayoutAdvice, Placed


def layout_report(found: "LayoutAdvice", tokens: float | None = None) -> Iterator[Block]:
    """Yield the answer, its tables of layouts, and its caveats. `tokens` are those of a whole training."""
    yield Facts.of(_answer(found, tokens))
    yield _table("layout", found.frontier)
    if found.runners_up:
        yield _table("next layout", found.runners_up)
    yield from (f"Caution: {one}." for one in found.warnings)
    yield (
        f"{found.candidates:,} layouts with their techniques were planned, and {found.refused:,} more were refused. "
        "All of this is predicted from datasheets, and nothing was measured. Plans leave out overlap, stragglers, the "
        "update and memory traffic; small models take longer. Buffers and gathered weights take gigabytes more. The "
        "errors of plans are in docs/numbers.md."
    )
    if found.sources:
        yield f"Changes of the loss were measured on like runs: {'; '.join(found.sources)}."
    if found.lossy:
        yield f"Left out, because no like measurement or published training keeps their loss: {', '.join(found.lossy)}."
    if found.unplanned:
        yield f"Left out, because no plan over several ranks has them: {', '.join(found.unplanned)}."


def _answer(found: "LayoutAdvice", tokens: float | None) -> Iterator[tuple[str, str]]:
    best, size = found.recommended, found.cluster.size
    yield "turn on", best.title
    yield "layout", f"{best.mesh}, on {found.cluster}"
    yield "plan it", found.command
    yield "train it", found.train_command or "no command of assay starts a run over several nodes"
    mfu = f"{best.projection.mfu:.1%} MFU"
    yield "speed", f"{format_count(best.tokens_per_second)} tokens/s, {format_seconds(best.seconds)} a step, {mfu}"
    budget = format_bytes(found.budget_bytes)
    yield "memory", f"{format_bytes(best.need_bytes)} of tensors on the fullest rank, of {budget}"
    waits = f"{best.communication_share:.1%} in collectives, {best.idle_share:.1%} idle in the pipeline"
    yield "waiting", f"{waits}, of a step without overlap"
    yield "loss", best.numerics.value
    if tokens is not None:
        seconds = found.training_seconds(tokens)
        hours = format_count(seconds * size / 3600)
        yield "training", f"{format_count(tokens)} tokens take {days(seconds)}, or {hours} hours of one GPU"


def _table(heading: str, placed: "Iterable[Placed]") -> Table:
    rows = [
        (str(one.mesh), one.title, format_count(one.tokens_per_second), format_bytes(one.need_bytes)) for one in placed
    ]
    return Table.of((heading, "techniques", "tokens/s", "needs"), rows, ("tokens/s", "needs"))
