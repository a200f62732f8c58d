"""An estimate as text: a step of the fullest rank, other ranks, parts of the peak, instants, and a traced step."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from assay.cost.simulation.timeline import PARTS
from assay.estimator.every_rank import EveryRank
from assay.estimator.memory_fit import fit_of
from assay.records.own import TracedPeak
from assay.report.kit.blocks import UNKNOWN, Block, Facts, Table
from assay.report.kit.view import Shown
from assay.report.mesh import divided_parts
from assay.report.predictions import CAPTURED_FIT, SHEET_ROOFLINE, by_kernels, fit_sentence, fit_words, longer, within
from assay.units import (
    format_bytes,
    format_count,
    format_flops,
    format_percent,
    format_seconds,
    with_factor,
    with_margin,
)

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.cost.simulation.allocator import Moment
    from assay.cost.simulation.reserved import Interval
    from assay.estimator import Estimate
    from assay.estimator.memory_fit import Fit

_SHOWN = 48
"""Most instants to show; a deep model has several for every block."""


class EstimateView(Shown[EveryRank]):
    """One predicted step, as a reader is shown it."""

    def __init__(self, found: EveryRank, *, instants: bool = False) -> None:
        super().__init__(found)
        self._instants = instants

    def blocks(self) -> Iterator[Block]:
        """Yield the step of the fullest rank, tables of all ranks, and the parts of the peak.

        With `instants`: the highest instant of each part of the step instead.
        """
        yield headline(self.found)
        yield _step(self.found)
        yield from _spared(self.found.fullest)
        yield from ranks_report(self.found)
        if self._instants:
            yield from _instants(self.found.fullest)
        else:
            yield composition_table(self.found.fullest)

    def values(self) -> dict[str, Any]:
        """Return the figures of the fullest rank, and by rank where they differ, for programs."""
        return self.found.to_dict()

    def frame(self) -> "pandas.DataFrame":
        """Return a row per instant of the step: `instant` and live `bytes`."""
        import pandas

        instants = self.found.fullest.timeline.instants
        return pandas.DataFrame({"instant": str(moment), "bytes": moment.nbytes} for moment in instants)

    def figure(self, name: str = "") -> "Figure":
        """Return the figure of live memory by instant."""
        from assay.report.kit.curves import memory

        return memory(self.found.fullest.timeline.instants)


def headline(every: EveryRank) -> str:
    """Return the answer in one sentence: whether the step fits the GPU, or what it needs, and how long it takes."""
    fullest, found = every.fullest, every.step_time
    bound = found is not None and found.margin is None and fullest.sheet is not None
    time = "" if found is None else f"{'at least' if bound else 'about'} {format_seconds(found.seconds)} a step"
    fit = fit_of(fullest)
    if fit is not None:
        said = fit_sentence(fit.need, fit.memory_bytes, f"one {fullest.machine.accelerators[0].name}")
    else:
        ranks = " on the fullest rank" if len(every.ranks) > 1 else ""
        said = f"Its tensors need {format_bytes(fullest.timeline.peak.nbytes)} at the peak{ranks}"
    return f"{said}{', ' if time else ''}{time}."


class EstimateRowsView(Shown[Mapping[str, EveryRank]]):
    """A row for each of several stacks, as a reader is shown them."""

    def blocks(self) -> Iterator[Block]:
        """Yield a table with a row for each stack, why a time is missing, and the parts of the peaks in columns."""
        rows = self.found
        fits = {heading: fit_of(one.fullest) for heading, one in rows.items()}
        figures = ("saved for backward", "peak of tensors", "work", "step time")
        fitting = ("does it fit?",) if any(fits.values()) else ()
        cells = [(heading, *_row(one), *_verdict(fits[heading], fitting)) for heading, one in rows.items()]
        yield Table.of(("one optimizer step", *figures, *fitting), cells, figures, ("work",))
        missing = dict.fromkeys(_unknown_time(one) for one in rows.values() if one.step_time is None)
        yield from (f"Step time: {reason}." for reason in missing)
        yield compositions_table({heading: one.fullest for heading, one in rows.items()})
        yield "A row that is asked alone has all its figures, and says what its step time rests on."

    def values(self) -> dict[str, Any]:
        """Return the figures of every row for programs."""
        return {"rows": {heading: one.to_dict() for heading, one in self.found.items()}}


def _row(every: EveryRank) -> tuple[str, ...]:
    fullest = every.fullest
    saved, peak = fullest.timeline.saved_bytes, fullest.timeline.peak.nbytes
    return format_bytes(saved), format_bytes(peak), _work(fullest), _short_time(every)


def _short_time(every: EveryRank) -> str:
    """Return the step time with its margin or factor, in few words."""
    found = every.step_time
    if found is None:
        return UNKNOWN
    if found.margin is not None:
        return with_margin(found.seconds, found.margin)
    least = "at least " if every.fullest.sheet is not None else ""
    return f"{least}{with_factor(found.seconds, found.factor)}"


def _verdict(fit: "Fit | None", fitting: tuple[str, ...]) -> tuple[str, ...]:
    """Return the cell on whether a row fits; none without such a column."""
    return tuple(UNKNOWN if fit is None else fit.verdict for _ in fitting)


def _work(fullest: "Estimate") -> str:
    return " + ".join(f"{format_flops(count)} in {dtype}" for dtype, count in fullest.flops.items())


def _step(every: EveryRank) -> Table:
    fullest = every.fullest
    idle = fullest.active_parameters < fullest.parameters
    active = f", {format_count(fullest.active_parameters)} of them active per token" if idle else ""
    if beside := fullest.adapter_parameters:
        active += f", all frozen; trained are {format_count(beside)} beside them"
    of = "" if len(every.ranks) == 1 else f"rank {fullest.cost.rank} of {len(every.ranks)}, with the highest peak"
    rows = {
        **_device(fullest),
        "optimizations": " + ".join(map(str, every.run.optimizations)) or "none",
        "parameters": format_count(fullest.parameters) + active,
        "tokens per step": format_count(every.run.tokens_per_step),
        "weights": format_bytes(fullest.cost.parameter_bytes),
        "gradients": format_bytes(fullest.gradient_bytes),
        "optimizer state": format_bytes(fullest.cost.optimizer_state_bytes),
        "saved for backward": format_bytes(fullest.timeline.saved_bytes),
        "peak of tensors": format_bytes(fullest.timeline.peak.nbytes),
        **_around(fullest),
        "work": _work(fullest),
    }
    return Table.of(("one optimizer step", of), (rows | _time(every)).items())


def _spared(answer: "Estimate") -> Iterator[str]:
    """Say what frozen weights leave out, and what stays."""
    if spared := answer.cost.spared_bytes:
        whole = format_bytes(spared + answer.cost.gradient_bytes + answer.cost.optimizer_state_bytes)
        yield f"Frozen weights leave out {format_bytes(spared)} of {whole} of gradients and optimizer state."
        yield f"What is saved for backward stays: {format_bytes(answer.timeline.saved_bytes)}."


def _device(answer: "Estimate") -> dict[str, str]:
    """Return the row of a device that is known by its datasheet only."""
    if answer.sheet is None:
        return {}
    one = answer.machine.accelerators[0]
    return {"device": f"{one.name}, {format_bytes(one.memory_bytes)} for torch; it may be absent"}


def _time(every: EveryRank) -> dict[str, str]:
    """Return the step time with its margin, or with what its rates are worth."""
    found = every.step_time
    if found is None:
        return {"step time": _unknown_time(every)}
    if (sheet := every.fullest.sheet) is not None:
        if found.apart is None:
            return {"step time, at least": f"{format_seconds(found.seconds)}, {SHEET_ROOFLINE}"}
        time = f"{within(found)}, {by_kernels(sheet.sheet)}"
        return {"step time, predicted": time, "host and device, at the same time": longer(found)}
    if found.margin is not None:
        load = ", timed while other programs worked" if found.under_load else ""
        rows = {"step time, from timed steps of few blocks": f"{with_margin(found.seconds, found.margin)}{load}"}
        if found.apart is not None:
            host, device = map(format_seconds, found.apart)
            rows["host and device, at the same time"] = f"{host} to queue the step, {device} on the device"
        return rows
    together = "" if len(every.ranks) == 1 else " of all ranks"
    machine = every.fullest.machine
    rates = machine.rates[machine.device(every.run.device)]
    rows = {f"step time{together}, a roofline at the rates measured here": with_factor(found.seconds, found.factor)}
    return {**rows, "caution, these rates": rates.caveat} if rates.caveat else rows


def _unknown_time(every: EveryRank) -> str:
    """Return why no step time is predicted, and what to do."""
    from assay.config import Home
    from assay.hardware.rates import damaged_files
    from assay.launch.prepare import threads_of

    if every.fullest.sheet is not None:
        return f"not predicted; the datasheet has no product in {', '.join(every.fullest.unrated)}"
    option = "" if (threads := threads_of(every.run)) is None else f" --threads {threads}"
    damaged = "".join(f": {path} is damaged or has no digest" for path in damaged_files(Home())[:1])
    return f"not predicted{damaged}; `assay machine{option}` measures the rates that it needs"


def _around(answer: "Estimate") -> dict[str, str]:
    """Return rows of the memory that is needed in addition to the tensors."""
    from assay.estimator.device_memory import device_memory

    most, device = answer.library_scratch_bytes, device_memory(answer)
    rows = {"working storage, in addition": f"0 to {format_bytes(most)} of library scratch"} if most else {}
    if device is None:
        return rows
    rows["working storage, in addition"] = f"{_interval(device.working)} of cuBLAS"
    if device.reserved is None or device.total is None:
        return {**rows, "does it fit?": CAPTURED_FIT}
    rows["requested at once, with working storage"] = _interval(answer.requested_bytes)
    rows["reserved by torch's allocator"] = f"{_interval(device.reserved)}, with working storage"
    rows["context of CUDA"] = _interval(device.context)
    rows["in use on the device"] = _interval(device.total)
    if (fit := fit_of(answer)) is not None:
        rows["does it fit?"] = fit_words(fit)
    return rows


def _interval(bytes_: "Interval") -> str:
    return " to ".join(dict.fromkeys(map(format_bytes, (bytes_.low, bytes_.high))))


def _instants(answer: "Estimate") -> Iterator[Block]:
    peak, instants = answer.timeline.peak, answer.timeline.instants
    stride = -(-len(instants) // _SHOWN)
    shown = [moment for place, moment in enumerate(instants) if place % stride == 0 or moment is peak]
    rows = [
        (
            str(moment),
            format_bytes(moment.nbytes),
            f"{moment.nbytes / peak.nbytes:.0%}",
            "← peak" if moment is peak else "",
        )
        for moment in shown
    ]
    yield Table.of(("highest instant of each part", "alive", "of the peak", ""), rows, ("alive", "of the peak"))
    if stride > 1:
        yield f"{len(instants)} instants: one in {stride} is shown, and the peak; --json prints all"


_WIDTH = 32
"""Characters of the peak's bar."""
_PEAK, _INSTANT = "peak of tensors", "instant"


def composition_table(answer: "Estimate") -> Table:
    """Parts of the peak with bytes, shares and bars, and the peak with its instant."""
    return parts_table(answer.peak_parts, answer.timeline.peak)


def parts_table(parts: Mapping[str, int], peak: "Moment") -> Table:
    """Parts of a peak that are known already, as a table."""
    rows, below = [], 0
    for part, nbytes in parts.items():
        rows.append((part, format_bytes(nbytes), f"{nbytes / peak.nbytes:.1%}", _bar(below, nbytes, peak.nbytes)))
        below += nbytes
    rows.append((_PEAK, format_bytes(peak.nbytes), "100.0%", str(peak)))
    return Table.of(("parts of the peak", "bytes", "share", ""), rows, ("bytes", "share"))


def compositions_table(answers: Mapping[str, "Estimate"]) -> Table:
    """Parts of the peaks of several stacks, which are columns with their names as headings."""
    columns = list(answers.values())
    shown = [part for part in PARTS if any(part in one.peak_parts for one in columns)]
    rows = [(part, *(_cell(one, part) for one in columns)) for part in shown]
    rows.append((_PEAK, *(format_bytes(one.timeline.peak.nbytes) for one in columns)))
    rows.append((_INSTANT, *(str(one.timeline.peak) for one in columns)))
    return Table.of(("parts of the peak", *answers), rows, answers)


def _cell(answer: "Estimate", part: str) -> str:
    return format_bytes(answer.peak_parts[part]) if part in answer.peak_parts else "–"


def _bar(below: int, nbytes: int, peak: int) -> str:
    """A bar that begins after the bytes `below`; a part of any size has at least one character."""
    start = min(round(_WIDTH * below / peak), _WIDTH - 1)
    end = max(round(_WIDTH * (below + nbytes) / peak), start + 1)
    return " " * start + "█" * (end - start)


_SAVED = "saved: "
_ALL_SAVED = "saved for backward"


class TracedView(Shown[TracedPeak]):
    """A traced peak, as a reader is shown it: alone, or beside the ledger's."""

    def __init__(self, found: TracedPeak, ledger: "Estimate | None" = None) -> None:
        super().__init__(found)
        self._ledger = ledger

    def blocks(self) -> Iterator[Block]:
        """Yield the parts of the peak."""
        traced = self.found
        if self._ledger is not None:
            yield _beside(traced, self._ledger)
            return
        yield Facts.of([("parameters", format_count(traced.parameters))])
        rows = [
            (part, format_bytes(count), f"{count / traced.peak_bytes:.1%}", "") for part, count in traced.parts.items()
        ]
        rows.append(("peak of tensors", format_bytes(traced.peak_bytes), "100.0%", traced.instant))
        yield Table.of(("parts of the peak, traced", "bytes", "share", ""), rows, ("bytes", "share"))

    def values(self) -> dict[str, Any]:
        """Return all figures for programs."""
        return self.found.model_dump(mode="json")

    def frame(self) -> "pandas.DataFrame":
        """Return a row per part of the peak: `part` and `bytes`."""
        import pandas

        return pandas.DataFrame(self.found.parts.items(), columns=["part", "bytes"])


def _beside(traced: TracedPeak, estimate: "Estimate") -> Table:
    """Return a traced peak beside the ledger's; saved tensors are one part, because the two sort them otherwise."""
    ledger, trace = together(estimate.peak_parts), together(traced.parts)
    columns = ("parts of the peak", "ledger", "traced", "difference")
    shown = [*ledger, *(part for part in trace if part not in ledger)]
    rows = [(part, *_pair(ledger.get(part), trace.get(part))) for part in shown]
    peak = estimate.timeline.peak
    rows.append(("peak of tensors", *_pair(peak.nbytes, traced.peak_bytes)))
    rows.append(("instant", str(peak), traced.instant, ""))
    return Table.of(columns, rows, columns[1:])


def together(parts: Mapping[str, int]) -> dict[str, int]:
    """Bytes by part, with all that is saved for backward as one."""
    found: Counter[str] = Counter()
    for part, count in parts.items():
        found[_ALL_SAVED if part.startswith(_SAVED) else part] += count
    return dict(found)


def _pair(ledger: int | None, traced: int | None) -> tuple[str, str, str]:
    if ledger is None or traced is None:
        known, found = (UNKNOWN if one is None else format_bytes(one) for one in (ledger, traced))
        return known, found, UNKNOWN
    return format_bytes(ledger), format_bytes(traced), format_percent(traced / ledger - 1)


def ranks_report(every: EveryRank) -> Iterator[Block]:
    """Yield two tables; nothing for a single rank."""
    if len(every.ranks) == 1:
        return
    columns = ["by rank", "weights", "optimizer state", "peak of tensors", "work", "payload"]
    columns += ["idle in the pipeline"] if every.idle_shares else []
    yield Table.of(columns, _ranks(every), columns[1:])
    heading = f"collectives of rank {every.fullest.cost.rank}"
    yield Table.of((heading, "among ranks that divide", "payload"), _payloads(every), ("payload",))


def _ranks(every: EveryRank) -> Iterator[tuple[str, ...]]:
    """Yield a row for each set of ranks with equal figures."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank, one in enumerate(every.ranks):
        figures = [
            format_bytes(one.cost.parameter_bytes),
            format_bytes(one.cost.optimizer_state_bytes),
            format_bytes(one.timeline.peak.nbytes),
            format_flops(one.step_flops),
            format_bytes(every.handed_bytes[rank]),
        ]
        figures += [f"{every.idle_shares[rank]:.1%}"] if every.idle_shares else []
        alike.setdefault(tuple(figures), []).append(rank)
    for shared, ranks in alike.items():
        yield _counted(ranks), *shared


def _counted(ranks: Sequence[int]) -> str:
    """Format ranks as ``"0–3, 8"``; consecutive ranks are one entry."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _payloads(every: EveryRank) -> Iterator[tuple[str, ...]]:
    """Yield the payload of the fullest rank by collective and axis."""
    handed: Counter[tuple[str, str]] = Counter()
    for one in every.communications[every.fullest.cost.rank]:
        handed[one.collective, one.axis] += round(one.count * one.payload_bytes)
    for (collective, axis), nbytes in handed.items():
        yield collective, f"{divided_parts(axis.split('+'))} ({axis})", format_bytes(nbytes)
