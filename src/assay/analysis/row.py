"""One row of a comparison: its figures, and their change against the baseline.

A time is the geometric mean of its blocks' medians, so that the ratio of two rows is the change printed beside it;
bytes are the most that any seed held; losses are listed seed by seed.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import Literal

from pydantic import Field

from assay.analysis.break_even import BreakEven, break_even
from assay.analysis.effects import Effect, Pair, exact, loss, timed
from assay.analysis.noise import Verdict
from assay.config.base import Frozen
from assay.runs.record import Block, Predicted, RankResult, RunResult, Status
from assay.step.evidence import Evidence, ValueProof
from assay.studies.record import CellResult

TIMED = ("process_peak_bytes", "step_seconds", "tokens_per_second")
EXACT = ("tensors_peak_bytes", "reserved_peak_bytes")
LOSSES = ("val_loss", "train_loss")
METRICS = (*EXACT, *TIMED, *LOSSES)
PREDICTED = ("tensors_peak_bytes", "reserved_peak_bytes", "process_peak_bytes", "step_seconds")
"""Those that an estimator speaks of before the run."""

Figure = int | float | tuple[float, ...] | None


class Row(Frozen):
    """A treatment in a comparison."""

    treatment: str
    status: Status
    """`done` when every seed is; else what the first other seed ended as."""
    reason: str | None
    runs: tuple[str, ...]
    """Ids of the runs, seed by seed."""
    planned: int
    """Seeds that were asked for."""
    finished: int
    """Seeds that the figures are from."""
    metrics: Mapping[str, Figure]
    """By metric; losses as one value a seed. None where it was not measured."""
    effects: Mapping[str, Effect] = Field(default_factory=dict)
    """Against the baseline; a metric is missing where there is nothing to compare."""
    verdicts: Mapping[str, Verdict] = Field(default_factory=dict)
    break_even: BreakEven | None = None
    """Where its first step takes longer than the baseline's."""
    predicted: Predicted | None
    predicted_change: Mapping[str, float] = Field(default_factory=dict)
    evidence: tuple[Evidence, ...]
    values: ValueProof | None = None
    """What the value check found in the first run that has one."""
    """Of the first seed; that the others say the same is checked by `flags`."""
    proven_until: Literal["beginning", "end"] | None = None
    """Which traced step the evidence holds for last; `beginning`: a run stopped before its end."""
    ranks: tuple[RankResult, ...] = ()
    """Of the first seed, where there are several."""
    flags: tuple[str, ...] = ()


def usable(cells: Iterable[CellResult]) -> list[CellResult]:
    """Those that ran to an end of their own, whose figures can be compared."""
    return [one for one in cells if one.result.status in (Status.DONE, Status.BUDGET_REACHED)]


def metrics(cells: Sequence[CellResult]) -> dict[str, Figure]:
    """The figures of a row from its cells."""
    results = [one.result for one in usable(cells)]
    step = _mean([_step(block) for result in results for block in result.blocks])
    if step is None:
        step = _mean([result.step_seconds.median for result in results if result.step_seconds])
    tokens = results[0].config.tokens_per_step if results else 0
    return {
        "tensors_peak_bytes": _most(result.memory.tensors_peak_bytes for result in results),
        "reserved_peak_bytes": _most(result.memory.reserved_peak_bytes for result in results),
        "library_scratch_bytes": _most(result.memory.library_scratch_bytes for result in results),
        "process_peak_bytes": _most(result.memory.process_peak_bytes for result in results),
        "step_seconds": step,
        "tokens_per_second": None if step is None else tokens / step,
        "val_loss": tuple(result.val_loss for result in results if result.val_loss is not None),
        "train_loss": tuple(result.train_loss for result in results if result.train_loss is not None),
    }


def effects(baseline: Sequence[CellResult], treated: Sequence[CellResult]) -> dict[str, Effect]:
    """The change of every metric that both have."""
    before, after = usable(baseline), usable(treated)
    places = {(one.cell.seed, one.wave): one.result for one in before}
    seeds = {one.cell.seed: one.result for one in reversed(before)}
    together = [(places[one.cell.seed, one.wave], one.result) for one in after if (one.cell.seed, one.wave) in places]
    by_seed = [(seeds[one.cell.seed], one.result) for one in after if one.cell.seed in seeds]
    found = {
        **{name: timed(_block_pairs(name, together) or _run_pairs(name, by_seed)) for name in TIMED},
        **{name: exact(_memory_pairs(name, by_seed)) for name in EXACT},
        **{name: loss(_loss_pairs(name, by_seed)) for name in LOSSES},
    }
    return {name: effect for name, effect in found.items() if effect is not None}


def repaid(baseline: Sequence[CellResult], treated: Sequence[CellResult]) -> BreakEven | None:
    """What the first step costs beyond the baseline's at the same seed, and when that is earned back."""
    results = {one.cell.seed: one.result for one in reversed(usable(baseline))}
    both = [(results[one.cell.seed], one.result) for one in usable(treated) if one.cell.seed in results]
    before, after = metrics(baseline)["step_seconds"], metrics(treated)["step_seconds"]
    return break_even(both, before, after) if isinstance(before, float) and isinstance(after, float) else None


_Both = Sequence[tuple[RunResult, RunResult]]


def _block_pairs(metric: str, both: _Both) -> list[Pair]:
    """Block by block, of cells that took turns."""
    pairs = [
        (_of_block(metric, one), _of_block(metric, other))
        for before, after in both
        for one, other in zip(before.blocks, after.blocks, strict=False)
    ]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _run_pairs(metric: str, both: _Both) -> list[Pair]:
    """Run by run, of cells that were not alive together."""
    pairs = []
    for before, after in both:
        one, other = (
            [value for block in result.blocks if (value := _of_block(metric, block)) is not None]
            for result in (before, after)
        )
        if one and other:
            pairs.append((geometric_mean(one), geometric_mean(other)))
    return pairs


def _memory_pairs(metric: str, both: _Both) -> list[Pair]:
    pairs = [(getattr(before.memory, metric), getattr(after.memory, metric)) for before, after in both]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _loss_pairs(metric: str, both: _Both) -> list[Pair]:
    pairs = [(getattr(before, metric), getattr(after, metric)) for before, after in both]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def _of_block(metric: str, block: Block) -> float | None:
    if metric == "process_peak_bytes":
        return block.process_peak_bytes
    step = _step(block)
    return step if metric == "step_seconds" else block.tokens / block.steps / step


def _step(block: Block) -> float:
    return block.median_step_seconds


def _mean(values: Sequence[float]) -> float | None:
    return geometric_mean(values) if values else None


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
