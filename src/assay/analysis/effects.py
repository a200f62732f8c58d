"""The change that a treatment makes, with an interval, and whether it is more than noise.

The change of a loss is that of a typical seed, because the mean over all seeds is no aim for few of them. If one seed
in fifty differs by fifty times as much, most samples lack it, and no interval of theirs knows of it. The median of all
seeds can be told.

Up to `WHOLE` seeds the interval is Student's t (Gosset 1908). Its mean is not the median where differences are skewed,
but for so few seeds that error is small beside its width. With more seeds it would not be. So a third of the seeds
beyond `WHOLE` is left out at each end. The interval is then that of a trimmed mean (Yuen 1974), which nears the median
as seeds are added. `benchmarks/validity.py` counts how often both hold, for normal and skewed differences, and with
outliers.

Bonferroni's correction makes several intervals hold together. Their small levels lie far out in the tails, where
skewness of a few seeds counts for more. So up to `FEW` seeds the levels are divided by `SKEWED` as well.

Values that are rounded may be equal at all seeds, and then nothing is known of their deviation. There is no interval,
and the reason is said. If only some are equal, the deviation is at least that of rounding to their smallest difference.

Three kinds of quantities have three rules for their intervals:

*Timed* (step time, tokens/s, process memory; `intervals`). An observation is a process, and the
change is that of mean logarithms. The intervals of all treatments hold together in 95 % of comparisons. Logarithms are
used because savings multiply: −50 % and +100 % cancel each other.

*Exact* (bytes requested from the allocator). The same run requests the same bytes every time, so the change is a plain
ratio. If the seeds do not agree, the interval is the range of their changes.

*Losses*. The seed is the unit: several processes of one seed count once, by their mean. The change is that of a typical
seed (`typical`), as a fraction of the baseline's mean. Fewer than three seeds give no interval, and differences that
are equal at all seeds give none either. Treatments change a loss by amounts of different sizes, so nothing is pooled.
Bonferroni's correction makes the intervals of all `comparisons` treatments hold together in 95 % of comparisons.

Three rules say what is more than noise. Two rows are equal if every pair is equal. A mean difference of zero is not
enough, because two seeds can cancel.

A *sampled* quantity (a time, a process's memory, a loss) differs if its interval excludes zero, and only then. The
intervals of all treatments hold together. Even if no treatment has an effect, at most 5 % of comparisons report that
one differs. The second baseline never differs: it is the same run, so its change is noise.

An *exact* quantity repeats exactly: any change is real, unless two equal baselines show a change as large.

Timed metrics go from blocks to one figure per process, and from processes to changes. The figure of a process is the
mean logarithm of its blocks. It is taken over rounds that all of its wave has, so that all rows are exposed to the same
state of the machine. A round with a disturbed block is left out for the whole wave, if at least `LEAST_ROUNDS` others
remain.

Processes are blocked by their wave: they took turns, so they ran in the same minutes. If some row never took turns with
a baseline, all are blocked by seed instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from math import exp, expm1, isfinite, log, log1p, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from assay.analysis.metrics import Metric
from assay.config.base import Frozen
from assay.records.run import RunResult
from assay.records.study import AGAIN, BASELINE, CellResult, ComparisonRecord
from assay.records.timing import DISTURBED, Round

if TYPE_CHECKING:
    from assay.analysis.intervals import Design


LEAST_SEEDS = 3
LOSS_CONFIDENCE = 0.95
WHOLE = 10
"""Most seeds of which none is left out."""
FEW, SKEWED = 5, 1.4
"""Up to so many seeds, an interval that is one of several has its level divided by the second number."""
EQUAL = "the difference is the same at every seed, so its deviation is not known"
_SAME = 1e-12
"""Differences that are so near are equal but for the rounding of their subtraction."""


class Typical(NamedTuple):
    """A typical difference."""

    middle: float
    """Mean of the differences that are not left out."""
    half: float | None
    """Half width of its interval; None if there is none."""
    reason: str | None = None
    """Why it has no interval, although there are seeds enough."""


def typical(values: Sequence[float], comparisons: int, step: float = 0.0) -> Typical:
    """Return the typical one of some differences, as one of several comparisons.

    `step` is the smallest difference that the values can show. Differences that vary by less are equal, and they are
    zero if none is larger.
    """
    ordered, out = sorted(values), left_out(len(values))
    kept = ordered[out : len(ordered) - out]
    middle = fmean(kept)
    if len(ordered) < LEAST_SEEDS:
        return Typical(middle, None)
    least = max(step, _SAME)
    gaps = [after - before for before, after in pairwise(ordered) if after - before > least]
    if not gaps and max(map(abs, ordered)) > least:
        return Typical(middle, None, EQUAL)
    limited = [kept[0]] * out + kept + [kept[-1]] * out
    trimmed = stdev(limited) * sqrt((len(ordered) - 1) / (len(kept) - 1))
    deviation = max(trimmed, min(gaps, default=step) / sqrt(12))
    return Typical(middle, factor(len(ordered), comparisons) * deviation / sqrt(len(kept)))


def left_out(count: int) -> int:
    """Return how many of so many seeds are left out at each end."""
    return max(0, (count - WHOLE + 2) // 3)


def degrees(count: int) -> int:
    """Return the degrees of freedom of so many seeds."""
    return count - 2 * left_out(count) - 1


def factor(count: int, comparisons: int) -> float:
    """Return the half width of an interval in standard errors, for so many seeds and one of several comparisons."""
    from scipy.special import stdtrit

    skewed = SKEWED if comparisons > 1 and count <= FEW else 1.0
    return float(stdtrit(degrees(count), 1 - (1 - LOSS_CONFIDENCE) / (2 * comparisons * skewed)))


Pair = tuple[float, float]
"""Values of the baseline and the treatment."""

LOSS_STEP = 2.0**-23
"""Smallest relative difference of two losses in float32."""


class Effect(Frozen):
    """A change against the baseline, as a fraction: −0.1 is ten percent less."""

    change: float
    interval: tuple[float, float] | None
    pairs: int
    """Number of processes of the treatment; for losses, of seeds."""
    equal: bool = False
    """True if treatment and baseline are the same in every pair."""
    untold: str | None = None
    """Why there is no interval, although there are repetitions enough; None if there is one, or too few of them."""


def exact(pairs: Sequence[Pair]) -> Effect | None:
    """Return the change of a quantity that repeats exactly; None without a pair.

    Its interval is a range, or None if all pairs agree.
    """
    changes = [after / before - 1 for before, after in pairs if before > 0]
    if not changes:
        return None
    spread = min(changes), max(changes)
    return Effect(
        change=fmean(changes),
        interval=None if spread[0] == spread[1] else spread,
        pairs=len(changes),
        equal=all(before == after for before, after in pairs),
    )


def loss(seeds: Sequence[Sequence[Pair]], comparisons: int = 1) -> Effect | None:
    """Return the change of a loss from the pairs of each seed, as a fraction of the baseline's mean.

    It is None if no pair is finite, and if the baseline's mean is zero.
    """
    finite = [[pair for pair in pairs if isfinite(pair[0]) and isfinite(pair[1])] for pairs in seeds]
    means = [(fmean(before for before, _ in pairs), fmean(after for _, after in pairs)) for pairs in finite if pairs]
    scale = fmean(before for before, _ in means) if means else 0.0
    if not scale:
        return None
    found = typical([(after - before) / scale for before, after in means], comparisons, LOSS_STEP)
    return Effect(
        change=found.middle,
        interval=None if found.half is None else (found.middle - found.half, found.middle + found.half),
        pairs=len(means),
        equal=all(before == after for pairs in seeds for before, after in pairs),
        untold=found.reason,
    )


class Verdict(StrEnum):
    """Verdict on a change, in words that a table can print."""

    DIFFERS = "differs"
    EQUAL = "exactly equal"
    NOT_DISTINGUISHABLE = "not distinguishable"
    """The comparison cannot distinguish the change from none: its interval contains zero."""
    TOO_FEW = "too few to tell"
    UNTOLD = "cannot be told"
    """There is no interval, although there are repetitions enough; the effect has the reason."""

    @property
    def distinguishable(self) -> bool:
        """True if there is a change to report."""
        return self is Verdict.DIFFERS


def judge_sampled(effect: Effect, *, same: bool = False) -> Verdict:
    """Verdict on a quantity that varies between repetitions; `same` if both are known to be the same run."""
    if effect.equal:
        return Verdict.EQUAL
    if same:
        return Verdict.NOT_DISTINGUISHABLE
    if effect.interval is None:
        return Verdict.UNTOLD if effect.untold else Verdict.TOO_FEW
    low, high = effect.interval
    return Verdict.NOT_DISTINGUISHABLE if low <= 0 <= high else Verdict.DIFFERS


def judge_exact(effect: Effect, again: Effect | None) -> Verdict:
    """Verdict on a quantity that repeats exactly; `again` is the change between two equal baselines."""
    if effect.equal:
        return Verdict.EQUAL
    return Verdict.DIFFERS if _size(effect) > _size(again) else Verdict.NOT_DISTINGUISHABLE


def _size(effect: Effect | None) -> float:
    """Largest distance from zero on the log scale, among a change and the ends of its range."""
    if effect is None:
        return 0.0
    ends = (effect.change, *(effect.interval or ()))
    return max(abs(log1p(end)) if end > -1 else float("inf") for end in ends)


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
        if one.result.speed.blocks:
            waves.setdefault(one.wave, []).append(one)
    known = {(one.wave, one.number - 1): set(one.disturbed) for one in told}
    found = {}
    for wave, some in waves.items():
        whole, names = range(min(len(one.result.speed.blocks) for one in some)), {one.cell.name for one in some}
        clean = [
            at
            for at in whole
            if not names & known.get((wave, at), set())
            and not any(one.result.speed.blocks[at].disturbed for one in some)
        ]
        found[wave] = clean if len(clean) >= min(LEAST_ROUNDS, len(whole)) else list(whole)
    return found


def figure(metric: Metric, result: RunResult, kept: Sequence[int]) -> float | None:
    """Mean logarithm of a process over some rounds; None if no block has the metric."""
    values = (
        [metric.of_block(result.speed.blocks[at]) for at in kept] if metric.of_block and result.speed.blocks else []
    )
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
    slowed = [block for one in record.cells for block in one.result.speed.blocks if block.gpu_was_slowed]
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
