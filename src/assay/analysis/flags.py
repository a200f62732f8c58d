"""What looks wrong in a comparison, read in both directions: too equal is flagged like too far.

An optimization declares what the same seed and data do to the loss (`Numerics`). A row that promises a bit-equal loss
and has another one is wrong; so is a row that promises a different training run and ends at the baseline's loss to the
last bit: its switch was dead. Two rows that change training in unlike ways and have equal losses are as suspect.
Whether bit-equality means anything here is shown by the A/A pair; where two identical baselines already part, only the
checks for too equal losses are left.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from assay.config.run import Run
from assay.optimizations.base import Numerics
from assay.optimizations.registry import resolve
from assay.runs.record import RunResult
from assay.studies.record import CellResult

Losses = tuple[tuple[float | None, ...], float | None, float | None]
"""By step, of the last step, and of the validation split."""

_SEVERITY = list(Numerics)
_DIFFERING = (Numerics.LOSSY, Numerics.DIFFERENT_TRAINING)
PREDICTION_TOLERANCE = 0.05


def numerics(run: Run) -> Numerics:
    """What a run's optimizations together promise about its loss: the loosest of them."""
    promised = [resolve(spec).promised for spec in run.optimizations]
    return max(promised, key=_SEVERITY.index, default=Numerics.EXACT)


def losses(cells: Sequence[CellResult]) -> dict[int, Losses]:
    """What each seed's loss did, for comparison to the last bit."""
    return {
        one.cell.seed: (one.curve.train_loss, one.result.train_loss, one.result.val_loss)
        for one in cells
        if one.result.train_loss is not None
    }


def loss_flags(
    promise: Numerics, baseline: Mapping[int, Losses], row: Mapping[int, Losses], repeats: bool
) -> list[str]:
    """Sentences on losses that are too equal or too far; `repeats` says whether identical runs were bit-equal."""
    shared = sorted(baseline.keys() & row.keys())
    equal = [seed for seed in shared if baseline[seed] == row[seed]]
    unequal = [seed for seed in shared if baseline[seed] != row[seed]]
    if promise in _DIFFERING and equal:
        return [f"too equal: the loss is the baseline's to the last bit at {_seeds(equal)}, and should differ"]
    if promise is Numerics.EXACT and unequal and repeats:
        return [f"too far: the loss should be the baseline's to the last bit, and is not at {_seeds(unequal)}"]
    return []


def twin_flags(treatments: Mapping[str, Sequence[CellResult]]) -> dict[str, list[str]]:
    """By treatment: sentences on losses that are another's to the last bit, where the two train unlike each other."""
    found: dict[str, list[str]] = {name: [] for name in treatments}
    for (one, cells), (other, others) in combinations(treatments.items(), 2):
        if not cells or not others or _changes(cells[0].cell.run) == _changes(others[0].cell.run):
            continue
        mine, theirs = losses(cells), losses(others)
        equal = [seed for seed in sorted(mine.keys() & theirs.keys()) if mine[seed] == theirs[seed]]
        if equal:
            said = "the loss is that of {} to the last bit at " + _seeds(equal) + ", and should differ"
            found[one].append(f"too equal: {said.format(other)}")
            found[other].append(f"too equal: {said.format(one)}")
    return found


def _changes(run: Run) -> frozenset[str]:
    """What in a run makes its loss another one than the baseline's."""
    return frozenset(str(spec) for spec in run.optimizations if resolve(spec).promised in _DIFFERING)


def evidence_flags(results: Sequence[RunResult]) -> list[str]:
    """Sentences on proofs that failed or that do not agree between the seeds."""
    found: dict[str, set[str]] = {}
    for result in results:
        for item in result.evidence:
            found.setdefault(item.optimization, set()).add(item.observed)
    flags = [f"the proof of {name} differs between seeds" for name, seen in found.items() if len(seen) > 1]
    unproven = sorted({spec.name for result in results for spec in result.config.optimizations} - found.keys())
    return flags + [f"{name} left no proof" for name in unproven]


def peak_flags(results: Sequence[RunResult]) -> list[str]:
    """Sentences on a tensor peak that does not repeat, or that the prediction missed."""
    flags = []
    peaks = {result.memory.tensors_peak_bytes for result in results} - {None}
    if len(peaks) > 1:
        flags.append("the peak of tensors differs between seeds, where it should repeat exactly")
    errors = {
        result.predicted.tensors_peak_bytes / result.memory.tensors_peak_bytes - 1
        for result in results
        if result.predicted and result.predicted.tensors_peak_bytes and result.memory.tensors_peak_bytes
    }
    if errors and (worst := max(errors, key=abs)) and abs(worst) > PREDICTION_TOLERANCE:
        flags.append(f"the predicted peak of tensors is {worst:+.1%} off the measured one")
    return flags


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
