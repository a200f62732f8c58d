"""The answer of `assay absent --ranks` as plain rows: the sentence first, then ranks, collectives and their order."""

from collections.abc import Iterator

from assay.absent.ranks_answer import RanksAnswer, count_repeats, payloads
from assay.absent.script_answer import AbsentAnswer
from assay.estimator.memory_fit import MemoryFit
from assay.report.absent import CANNOT_TELL, headline, limits
from assay.report.blocks import Block, Table
from assay.units import format_bytes

NOTHING_SENT = (
    "No rank received anything from another: a collective ends at once, and what is broadcast or gathered is the "
    "rank's own."
)
_MOST_RUNS = 12


def absent_ranks_report(answer: RanksAnswer) -> Iterator[Block]:
    """Yield the parts of the answer."""
    yield ranks_headline(answer)
    for rank, one in answer.answers.items():
        yield from (f"Rank {rank}: {text}" if isinstance(text, str) else text for text in limits(one))
    if answer.missing:
        others = "1 other rank was" if answer.missing == 1 else f"{answer.missing} other ranks were"
        yield f"{others} not run; --rank all runs every one."
    yield _ranks(answer)
    yield from _collectives(answer)
    yield f"{NOTHING_SENT} {CANNOT_TELL}"


def ranks_headline(answer: RanksAnswer) -> str:
    """Return the sentence that a colleague would say first."""
    rank = answer.fullest
    fullest, left = answer.answers[rank], answer.left_bytes
    if fullest.fit is not MemoryFit.YES or left is None:
        return f"Rank {rank} of {answer.ranks.count}: {headline(fullest)}"
    run = ", ".join(map(str, answer.ranks.run[:4])) + (", …" if len(answer.ranks.run) > 4 else "")
    which = f"rank {run} was run, and" if len(answer.answers) == 1 else f"ranks {run} were run, and each"
    fits = f"Of {answer.ranks.count} ranks, {which} fits one {answer.device.name}"
    low, high = answer.nccl_bytes(rank)
    if not high:
        return f"{fits}, and {format_bytes(left)} are left for NCCL's own buffers."
    nccl = f"NCCL's own buffers, which may take {_range((low, high))}"
    if high > left:
        return f"{fits}, if {nccl}, take less than {format_bytes(left)}."
    return f"{fits}, with room for {nccl}: {format_bytes(left)} are left for them."


def _ranks(answer: RanksAnswer) -> Table:
    memory = ("requested", "allocated", "reserved", "in use, without NCCL", "NCCL's own buffers")
    columns = ("rank", "fits", *memory, "collectives", "payload")
    rows = ((str(rank), *_rank(one), *_sums(answer, rank)) for rank, one in answer.answers.items())
    return Table.of(columns, rows, right=columns[2:])


def _range(ends: tuple[int, int]) -> str:
    """Format a range, or one amount if its ends look alike."""
    return " to ".join(dict.fromkeys(map(format_bytes, ends)))


def _rank(one: AbsentAnswer) -> Iterator[str]:
    yield one.fit.value
    peak, in_use = one.peak, one.in_use_bytes
    figures = (peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes) if peak else ()
    yield from map(format_bytes, figures) if figures else ("", "", "")
    yield _range(in_use) if in_use else ""


def _sums(answer: RanksAnswer, rank: int) -> tuple[str, str, str]:
    """NCCL's own buffers of a rank, its calls, and their payload."""
    calls = answer.calls(rank)
    return _range(answer.nccl_bytes(rank)), str(len(calls)), format_bytes(sum(one.bytes for one in calls))


def _collectives(answer: RanksAnswer) -> Iterator[Block]:
    """Collectives of a step, once for ranks whose calls have the same kinds and payloads."""
    shown: set[tuple[tuple[str, int], ...]] = set()
    for rank, one in answer.answers.items():
        calls, seen = answer.calls(rank), one.observation
        alike = tuple((call.name, call.bytes) for call in calls)
        if not calls or seen is None or alike in shown:
            continue
        shown.add(alike)
        period = "one step" if seen.steps else "the whole script"
        columns = (f"rank {rank}, {period}", "among ranks", "calls", "payload")
        rows = ((each.name, _among(each.ranks), str(each.calls), format_bytes(each.bytes)) for each in payloads(calls))
        yield Table.of(columns, rows, right=columns[2:])
        runs = [
            f"{call.name} {format_bytes(call.bytes)}" + (f" × {times}" if times > 1 else "")
            for call, times in count_repeats(calls)
        ]
        yield (
            "In order: "
            + ", ".join(runs[:_MOST_RUNS])
            + (f", and {len(calls)} in all." if len(runs) > _MOST_RUNS else ".")
        )
        if not seen.collectives.alike:
            yield f"The calls of rank {rank} differ between steps; the last step is shown."


def _among(ranks: tuple[int, ...]) -> str:
    """Ranks of a group in short, such as ``0–7`` or ``0, 2, 4, …``."""
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[0] + len(ranks))):
        return f"{ranks[0]}–{ranks[-1]}"
    return ", ".join(map(str, ranks[:4])) + (f", … ({len(ranks)})" if len(ranks) > 4 else "")
