"""Timed metrics of a comparison: from blocks to one figure per process, and from processes to changes.

The figure of a process is the mean logarithm of its blocks. It is taken over rounds that all of its wave has, so that
all rows are exposed to the same state of the machine. A round with a disturbed block is left out for the whole wave, if
at least `LEAST_ROUNDS` others remain.

Processes are blocked by their wave: they took turns, so they ran in the same minutes. If some row never took turns with
a baseline, all are blocked by seed instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import exp, expm1, log
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from assay.analysis.effects import Effect
from assay.analysis.metrics import Metric
from assay.config.base import Frozen
from assay.records.run import RunResult
from assay.records.study import AGAIN, BASELINE, CellResult, ComparisonRecord
from assay.records.timing import DISTURBED, Round

if TYPE_CHECKING:
    from assay.analysis.intervals import Design

LEAST_ROUNDS = 3
CONTROLS = (BASELINE, AGAIN)
Key = tuple[int, ...]


class Resolution(Frozen):
    """Smallest changes of a metric that a comparison can tell, as fractions."""

    told: float
    """Smallest measured change of a typical row that is called a difference."""
    likely: float
    """Smallest true change that is found in four of five comparisons."""
    deviation: float
    """Standard deviation between processes of one row, pooled; of a loss, between differences of a typical row."""
    degrees: int
    """Degrees of freedom of that deviation; of a loss, the fewest of a row."""


class Timed(NamedTuple):
    """Results of a comparison for one timed metric."""

    effects: dict[str, Effect]
    """Changes by treatment; that of `baseline (again)` is against the first baseline."""
    resolution: Resolution | None
    """None if no row has an interval."""


class TimedProcess(NamedTuple):
    """Observation of one process."""

    treatment: str
    wave: int
    seed: Key
    log: float


def rounds(cells: Sequence[CellResult], told: Iterable[Round]) -> dict[int, list[int]]:
    """Rounds that the figures are from, by wave, as positions among the blocks; `told` are those of the record."""
    waves: dict[int, list[CellResult]] = {}
    for one in cells:
        if one.result.blocks:
            waves.setdefault(one.wave, []).append(one)
    known = {(one.wave, one.number - 1): set(one.disturbed) for one in told}
    found = {}
    for wave, some in waves.items():
        whole, names = range(min(len(one.result.blocks) for one in some)), {one.cell.name for one in some}
        clean = [
            at
            for at in whole
            if not names & known.get((wave, at), set()) and not any(one.result.blocks[at].disturbed for one in some)
        ]
        found[wave] = clean if len(clean) >= min(LEAST_ROUNDS, len(whole)) else list(whole)
    return found


def figure(metric: Metric, result: RunResult, kept: Sequence[int]) -> float | None:
    """Mean logarithm of a process over some rounds; None if no block has the metric."""
    values = [metric.of_block(result.blocks[at]) for at in kept] if metric.of_block and result.blocks else []
    known = [log(value) for value in values if value]
    return fmean(known) if known else None


def timed_changes(metric: Metric, cells: Sequence[CellResult], kept: Mapping[int, Sequence[int]]) -> Timed:
    """Return the change of every treatment among usable `cells`; `kept` has the rounds that count, as from `rounds`."""
    seen = observations(metric, cells, kept)
    names = list(dict.fromkeys(one.treatment for one in seen if one.treatment not in CONTROLS))
    if not names or not any(one.treatment in CONTROLS for one in seen):
        return Timed(_again(seen, None, 0), None)
    return _judged(seen, names)


def observations(metric: Metric, cells: Sequence[CellResult], kept: Mapping[int, Sequence[int]]) -> list[TimedProcess]:
    """Return the observation of every process that has the metric, in the order of the cells."""
    return [
        TimedProcess(one.cell.treatment, one.wave, (one.cell.seed, one.cell.process), value)
        for one in cells
        if one.wave in kept and (value := figure(metric, one.result, kept[one.wave])) is not None
    ]


def designs(seen: Sequence[TimedProcess], names: Sequence[str]) -> "tuple[Design, Design]":
    """Return the design with waves as blocks, and that with seeds and processes as blocks; row 0 is the control."""
    from assay.analysis.intervals import Design

    rows = [0 if one.treatment in CONTROLS else 1 + names.index(one.treatment) for one in seen]
    return Design(rows, _numbered([(one.wave,) for one in seen])), Design(rows, _numbered([one.seed for one in seen]))


def disturbances(record: ComparisonRecord) -> list[str]:
    """Return a sentence on the number of disturbed rounds and on their handling; empty if there are none."""
    disturbed = sum(bool(one.disturbed) for one in record.rounds)
    if not disturbed:
        return []
    repeated = sum(one.number > record.protocol.blocks for one in record.rounds)
    return [
        f"In {disturbed} of {len(record.rounds)} rounds other programs, waiting runs or a hypervisor used more than "
        f"{100 * DISTURBED:.0f} % of the processor time{_slowed_gpus(record)}; {repeated} rounds were repeated for it. "
        f"Disturbed rounds are left out if at least {LEAST_ROUNDS} others remain."
    ]


def _slowed_gpus(record: ComparisonRecord) -> str:
    """Return how many blocks a slowed GPU disturbed, with the reasons, as part of a sentence."""
    slowed = [block for one in record.cells for block in one.result.blocks if block.gpu_was_slowed]
    if not slowed:
        return ""
    reasons = sorted({reason for block in slowed if block.gpu for reason in block.gpu.slowed_by})
    because = f", because of {', '.join(reasons)}" if reasons else ""
    return f", or the GPU was slowed (in {len(slowed)} blocks{because})"


def _judged(seen: Sequence[TimedProcess], names: Sequence[str]) -> Timed:
    import numpy as np

    by_wave, by_seed = designs(seen, names)
    values = np.array([one.log for one in seen])
    found = by_wave.differences(values)
    if np.isnan(found.change).any():
        found = by_seed.differences(values)
    effects = {
        name: _effect(float(found.change[at]), float(found.half_width[at]), sum(one.treatment == name for one in seen))
        for at, name in enumerate(names)
        if not np.isnan(found.change[at])
    }
    degrees, deviation = int(found.pooled_degrees), float(found.deviation)
    usual = found.half_width[~np.isnan(found.half_width) & ~found.apart]
    if not len(usual):
        return Timed({**_again(seen, None, 0), **effects}, None)
    resolution = Resolution(
        told=expm1(float(np.median(usual))),
        likely=expm1(float(np.median(found.likely[~np.isnan(found.half_width) & ~found.apart]))),
        deviation=deviation,
        degrees=degrees,
    )
    return Timed({**_again(seen, deviation, degrees), **effects}, resolution)


def _again(seen: Sequence[TimedProcess], deviation: float | None, degrees: int) -> dict[str, Effect]:
    """Change of the second baseline against the first of its wave, or of its seed."""
    first = {one.wave: one.log for one in seen if one.treatment == BASELINE}
    by_seed = {one.seed: one.log for one in reversed(seen) if one.treatment == BASELINE}
    changes = [
        one.log - before
        for one in seen
        if one.treatment == AGAIN and (before := first.get(one.wave, by_seed.get(one.seed))) is not None
    ]
    if not changes:
        return {}
    half = float("nan")
    if deviation is not None:
        from assay.analysis.intervals import CONFIDENCE, student

        half = float(student((1 + CONFIDENCE) / 2, degrees)) * deviation * (2 / len(changes)) ** 0.5
    return {AGAIN: _effect(fmean(changes), half, len(changes))}


def _effect(change: float, half: float, pairs: int) -> Effect:
    interval = None if half != half else (expm1(change - half), exp(change + half) - 1)
    return Effect(change=expm1(change), interval=interval, pairs=pairs, equal=False)


def _numbered(keys: Sequence[Key]) -> list[int]:
    known = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return [known[key] for key in keys]
