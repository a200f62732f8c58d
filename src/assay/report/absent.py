"""Answers of `assay absent` as plain rows: the sentence first, then what it rests on; on one GPU, and over ranks."""

from collections.abc import Iterator, Mapping
from typing import Any

from assay.absent.gpus import AbsentDevice
from assay.absent.largest import MOST, LargestFit
from assay.absent.observation import Observation, Read, Unknown
from assay.absent.ranks_answer import RanksAnswer, count_repeats, payloads
from assay.absent.script_answer import AbsentAnswer, key_of
from assay.estimator.memory_fit import MemoryFit
from assay.estimator.timing.step_time import StepTime
from assay.hardware.devices import CONTEXT_BYTES
from assay.report.kit.blocks import Block, Facts, Table
from assay.report.kit.view import Shown
from assay.report.predictions import by_kernels, longer, within
from assay.units import format_bytes, format_steps

_LEAST, _MOST = (f"{one / 1e9:.2f}" for one in CONTEXT_BYTES)
WITH_CONTEXT = f"with a context of {_LEAST} to {_MOST} GB (measured on one H200)"
CANNOT_TELL = (
    "Nothing was computed: losses and other values mean nothing (numbers that are read are 0, a bool is true), "
    "and no time that the script takes means anything."
)
COUNTS = {
    "launches": "launches of kernels",
    "products": "products (cuBLAS)",
    "fills": "fills",
    "copies_on_device": "copies on the device",
    "copies_to_device": "copies to the device",
    "pageable_copies": "of these from pageable memory",
    "copies_to_pinned": "copies to pinned memory",
    "synchronizations": "synchronizations",
    "graph_nodes": "nodes of replayed graphs",
    "reads": "reads by the host",
}
_BECOMES = {"value": "value", "whole": "whole number", "size": "size", "sent": "what was sent"}
_MOST_LINES = 10


class AbsentView(Shown[AbsentAnswer]):
    """The answer of a script on an absent GPU, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the parts of the answer."""
        answer = self.found
        yield headline(answer)
        yield from limits(answer)
        seen = answer.observation
        if seen is None or seen.refused or answer.peak is None:
            return
        yield Facts.of([*_memory(answer), *_time(answer)])
        if len(seen.devices) > 1:
            yield _devices(seen)
        yield from _counts(answer, seen)
        if seen.reads:
            yield _reads(seen.reads, seen.steps)
        yield CANNOT_TELL

    def values(self) -> dict[str, Any]:
        """Return the figures of the answer for programs."""
        return self.found.to_dict()


def headline(answer: AbsentAnswer) -> str:
    """Return the sentence that a colleague would say first."""
    device, total = answer.device.name, format_bytes(answer.device.visible_bytes)
    seen, in_use = answer.observation, answer.in_use_bytes
    if seen is None:
        return "The script was not observed: no process of the command loaded the observer (python -I and -S hide it)."
    if answer.fit is MemoryFit.NO:
        one = seen.exhausted[-1] if seen.exhausted else None
        asked = f" when {one.short} asked for {format_bytes(one.wanted_bytes)}" if one else ""
        return f"It does not fit {_one(device)}: the {total} were exhausted{asked}, in step {seen.steps + 1}."
    if seen.refused:
        return f"Whether it fits {_one(device)} is not known."
    if in_use is None:
        return (
            "The script used no GPU." if answer.fit is MemoryFit.UNUSED else f"Whether it fits {device} is not known."
        )
    peaks = f"at its peak {format_bytes(answer.peak.reserved_bytes if answer.peak else 0)} are reserved"
    used = f"{peaks} and {format_range(in_use)} of {total} in use"
    if answer.fit in (MemoryFit.YES, MemoryFit.CONDITIONAL):
        return f"It fits {_one(device)}{_condition(answer, in_use[1])}: {used}."
    if answer.fit is MemoryFit.BARELY:
        return f"It may just fit {_one(device)}, or just not: {used}."
    if answer.sizes:
        unknown = "is not known, and neither is its peak: shapes hang on values that nobody computed"
        return f"Whether it fits {_one(device)} {unknown}."
    return f"Whether it fits {_one(device)} is not known; so far {used}."


def _condition(answer: AbsentAnswer, in_use: int) -> str:
    """Clause on what the answer hangs; empty if on nothing."""
    said = []
    if answer.unknown:
        libraries = " and ".join(dict.fromkeys(one.library for one in answer.unknown))
        left = format_bytes(answer.device.visible_bytes - in_use)
        said.append(f"the workspaces of {libraries}, which are not known, take no more than the {left} that are left")
    if answer.whole:
        said.append("no size hangs on the whole numbers that it reads")
    return f" if {', and '.join(said)}" if said else ""


def _one(device: str) -> str:
    return f"one {device}"


def limits(answer: AbsentAnswer) -> Iterator[Block]:
    """Yield sentences on what limits the answer."""
    seen = answer.observation
    if seen is None:
        return
    for one in answer.sizes[:_MOST_LINES]:
        yield (
            f"{one.short} reads a size ({one.operator}) that the device would have computed. State it with "
            f"--read {_where(one)}=VALUE, and the peak can be told."
        )
    if answer.whole:
        lines = ", ".join(one.short for one in answer.whole[:3]) + (", …" if len(answer.whole) > 3 else "")
        yield f"Whole numbers are read at {lines}, and are 0 here; if a size hangs on one, state it with --read."
    for use in answer.refused[:_MOST_LINES]:
        yield f"{use.short} needs {use.library} ({use.function}), which an absent GPU does not have.{_remedy(use)}"
    for use in answer.unknown[:_MOST_LINES]:
        yield f"{use.short} uses {use.library}, whose workspace is not known: the peak is at least the one below."
    if seen.refused:
        yield f"The script chose {seen.refused}; its memory cannot be told."
    yield from _ending(answer, seen)
    if seen.exhausted and not answer.out_of_memory:
        first = seen.exhausted[0]
        more = format_bytes(first.wanted_bytes)
        yield f"Memory was exhausted at {first.short} ({more} more), and the script went on."
    if len(answer.observations) > 1:
        yield f"{len(answer.observations)} processes used the device; the figures are of the one with the highest peak."


def _remedy(use: Unknown) -> str:
    """Remedy for a library that is missing; empty if there is none."""
    if use.library == "NCCL":
        return " With --ranks N, and without torchrun, the script runs as one rank of N."
    recurrent = "recurrent" in use.library
    return " With torch.backends.cudnn.enabled = False torch uses kernels of its own." if recurrent else ""


def _ending(answer: AbsentAnswer, seen: Observation) -> Iterator[str]:
    ended = seen.ended
    steps = f"after {format_steps(seen.steps)}" if seen.steps else "before its first step"
    if ended.how == "endless":
        yield (
            f"The script was stopped {steps}: {ended.place.short} had read 10,000 times without a step of an "
            "optimizer, perhaps because it waits for a value that nobody computes."
        )
    elif ended.how == "raised" and not answer.out_of_memory:
        yield f"The script ended {steps} by {ended.error} at {ended.place.short}: {ended.message}"
    elif ended.how == "interrupted":
        yield f"The script was interrupted {steps}."
    elif ended.how in ("signal", "running"):
        yield f"The script was killed {steps}, or a little later; the figures are those of its last seconds but two."
    elif answer.returncode and not answer.out_of_memory:
        yield f"The script ended {steps} with exit code {answer.returncode}."


def _where(one: Read) -> str:
    return (one.caller or f"{one.file}:{one.line}").rpartition("/")[2]


def _memory(answer: AbsentAnswer) -> Iterator[tuple[str, str]]:
    peak, in_use = answer.peak, answer.in_use_bytes
    assert peak is not None
    assert in_use is not None
    withdrawn = " or more" if answer.sizes or answer.unknown else ""
    yield "requested", f"{format_bytes(peak.requested_bytes)}{withdrawn}, by tensors and workspaces"
    yield "allocated", f"{format_bytes(peak.allocated_bytes)}{withdrawn}, each rounded up"
    yield "reserved", f"{format_bytes(peak.reserved_bytes)}{withdrawn}, by torch's allocator"
    yield "in use", f"{format_range(in_use)}{withdrawn}, {WITH_CONTEXT}"


def _time(answer: AbsentAnswer) -> Iterator[tuple[str, str]]:
    """Yield the predicted time of a step, if it was asked for."""
    time = answer.step_time
    if isinstance(time, StepTime):
        yield "step", f"{within(time)}, {by_kernels(key_of(answer.device))}"
        yield "host, GPU", longer(time)
    elif time is not None:
        yield "step", f"no time is predicted: {time}"


def _devices(seen: Observation) -> Table:
    rows = (
        (str(one.device), *map(format_bytes, (one.requested_bytes, one.allocated_bytes, one.reserved_bytes)))
        for one in seen.devices
    )
    columns = ("device", "requested", "allocated", "reserved")
    return Table.of(columns, rows, right=columns[1:])


def _counts(answer: AbsentAnswer, seen: Observation) -> Iterator[Block]:
    if not seen.by_step:
        yield "No optimizer of torch took a step, so the counts are those of the whole script."
        yield Table.of(
            ("", "in all"), ((title, f"{seen.counts[name]}") for name, title in COUNTS.items()), right=("in all",)
        )
        return
    rows = []
    for name, title in COUNTS.items():
        found = answer.per_step(name)
        assert found is not None
        span = "" if found.least == found.most else f"{found.least} to {found.most}"
        rows.append((title, str(found.median), span, str(seen.by_step[0][name])))
    columns = (f"in one of {seen.steps} steps", "median", "range", "first step")
    yield Table.of(columns, rows, right=columns[1:])


def _reads(reads: tuple[Read, ...], steps: int) -> Table:
    most = sorted(reads, key=lambda one: -one.count)[:_MOST_LINES]
    rows: list[tuple[str, ...]] = [
        (one.short, one.operator or "-", _BECOMES[one.kind], str(one.count), format_bytes(one.bytes)) for one in most
    ]
    if len(reads) > _MOST_LINES:
        rest = reads[_MOST_LINES:]
        rows.append((f"{len(rest)} more lines", "", "", str(sum(one.count for one in rest)), ""))
    columns = ("read by", "operator", "becomes", "times", "bytes")
    return Table.of(columns, rows, right=columns[3:])


def device_table(devices: Mapping[str, AbsentDevice]) -> Table:
    """Return the table of GPUs that can be absent."""
    rows = (
        (
            name,
            one.name,
            ".".join(map(str, one.capability)),
            str(one.multiprocessors),
            f"{one.driver_bytes >> 20} MiB",
            f"{one.visible_bytes >> 20} MiB",
            one.source,
        )
        for name, one in devices.items()
    )
    columns = ("name", "device", "capability", "SMs", "driver", "torch sees", "source of the memory")
    return Table.of(columns, rows, right=columns[3:6], spare=columns[6:])


NOTHING_SENT = (
    "No rank received anything from another: a collective ends at once, and what is broadcast or gathered is the "
    "rank's own."
)
_MOST_RUNS = 12


class RanksView(Shown[RanksAnswer]):
    """The answer over ranks, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the parts of the answer."""
        answer = self.found
        yield ranks_headline(answer)
        for rank, one in answer.answers.items():
            yield from (f"Rank {rank}: {text}" if isinstance(text, str) else text for text in limits(one))
        if answer.missing:
            others = "1 other rank was" if answer.missing == 1 else f"{answer.missing} other ranks were"
            yield f"{others} not run; --rank all runs every one."
        yield _ranks(answer)
        yield from _collectives(answer)
        yield f"{NOTHING_SENT} {CANNOT_TELL}"

    def values(self) -> dict[str, Any]:
        """Return the figures of every rank for programs."""
        return self.found.to_dict()


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
    nccl = f"NCCL's own buffers, which may take {format_range((low, high))}"
    if high > left:
        return f"{fits}, if {nccl}, take less than {format_bytes(left)}."
    return f"{fits}, with room for {nccl}: {format_bytes(left)} are left for them."


def _ranks(answer: RanksAnswer) -> Table:
    memory = ("requested", "allocated", "reserved", "in use, without NCCL", "NCCL's own buffers")
    columns = ("rank", "fits", *memory, "collectives", "payload")
    rows = ((str(rank), *_rank(one), *_sums(answer, rank)) for rank, one in answer.answers.items())
    return Table.of(columns, rows, right=columns[2:])


def format_range(ends: tuple[int, int]) -> str:
    """Format a range, or one amount if its ends look alike."""
    return " to ".join(dict.fromkeys(map(format_bytes, ends)))


def _rank(one: AbsentAnswer) -> Iterator[str]:
    yield one.fit.value
    peak, in_use = one.peak, one.in_use_bytes
    figures = (peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes) if peak else ()
    yield from map(format_bytes, figures) if figures else ("", "", "")
    yield format_range(in_use) if in_use else ""


def _sums(answer: RanksAnswer, rank: int) -> tuple[str, str, str]:
    """NCCL's own buffers of a rank, its calls, and their payload."""
    calls = answer.calls(rank)
    return format_range(answer.nccl_bytes(rank)), str(len(calls)), format_bytes(sum(one.bytes for one in calls))


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


class LargestView(Shown[LargestFit]):
    """The largest number that fits, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the parts of the answer."""
        found = self.found
        yield _headline(found)
        shown = found.best or found.undecided
        if shown is not None:
            yield from AbsentView(shown.answer).blocks()
        if len(found.probes) > 1:
            yield _probes(found)

    def values(self) -> dict[str, Any]:
        """Return every number that was tried, and the figures of the best run, for programs."""
        return self.found.to_dict()


def _headline(found: LargestFit) -> str:
    device = found.probes[0].answer.device.name
    if found.undecided is not None:
        return f"The largest number is not known: with {found.undecided.number}, nobody can tell whether it fits."
    if found.best is None:
        return f"Even 1 does not fit one {device}."
    if found.best.number == MOST:
        return f"{MOST:,} fits one {device}, and no larger number was tried: does it change the script's memory?"
    return f"The largest number that fits one {device} is {found.best.number}."


def _probes(found: LargestFit) -> Table:
    rows = (
        (str(one.number), one.answer.fit.words, format_bytes(one.in_use_bytes) if one.fits else "")
        for one in sorted(found.probes, key=lambda one: one.number)
    )
    columns = ("number", "", "in use, at most")
    return Table.of(columns, rows, right=(columns[0], columns[2]))
