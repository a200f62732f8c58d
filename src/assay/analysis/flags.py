"""Sentences on suspicious results of a comparison: losses that are too equal, proofs and peaks that do not fit.

A row that promises a different training run and has the baseline's losses to the last bit took no effect. Two rows that
change training in different ways and have equal losses are as suspect. Losses that break a promise are no flag: they
change the status of their row (`promises`).
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from assay.analysis.loss_pairs import by_seed, equal_seeds, seeds_text
from assay.analysis.losses import Yardstick
from assay.analysis.promised import comparable
from assay.config.run import ResolvedRun
from assay.optimizations import Numerics
from assay.optimizations.registry import resolve
from assay.proofs.mispredicted import mispredicted
from assay.records.run import RunResult
from assay.records.study import CellResult

_DIFFERING = (Numerics.LOSSY, Numerics.DIFFERENT_TRAINING)


def equal_flags(cells: Sequence[CellResult], yardstick: Yardstick) -> list[str]:
    """Return a sentence if a row that promises different training has the baseline's losses."""
    different = [one for one in cells if yardstick.promise(one) is Numerics.DIFFERENT_TRAINING]
    if equal := yardstick.equal_seeds(different):
        return [f"too equal: the loss equals the baseline's to the last bit at {seeds_text(equal)}, but should differ"]
    return []


def twin_flags(treatments: Mapping[str, Sequence[CellResult]]) -> dict[str, list[str]]:
    """Return sentences by treatment on losses that equal another treatment's to the last bit.

    Treatments that change training in the same way are not compared.
    """
    found: dict[str, list[str]] = {name: [] for name in treatments}
    for (one, cells), (other, others) in combinations(treatments.items(), 2):
        if not cells or not others or not _should_differ(cells[0].cell.run, others[0].cell.run):
            continue
        equal = equal_seeds(cells, by_seed(others))
        if equal:
            said = "the loss equals that of {} to the last bit at " + seeds_text(equal) + ", but should differ"
            found[one].append(f"too equal: {said.format(other)}")
            found[other].append(f"too equal: {said.format(one)}")
    return found


def _should_differ(run: ResolvedRun, other: ResolvedRun) -> bool:
    """True if two runs of one configuration have techniques that change training in different ways."""
    return comparable(run, other) and _changes(run) != _changes(other)


def _changes(run: ResolvedRun) -> frozenset[str]:
    """Optimizations of a run that make its loss differ from the baseline's."""
    return frozenset(str(spec) for spec in run.optimizations if resolve(spec).promised in _DIFFERING)


def evidence_flags(results: Sequence[RunResult]) -> list[str]:
    """Return sentences on proofs that failed, that are missing in some run, or that differ between processes."""
    found: dict[str, set[tuple[str, ...]]] = {}
    failed, missing = set(), set()
    for result in results:
        said: dict[str, list[str]] = {spec.name: [] for spec in result.config.optimizations}
        for item in result.evidence:
            said.setdefault(item.optimization, []).append(item.observed)
            if not item.verdict:
                failed.add(f"the proof of {item.optimization} failed: {item.observed}")
        missing |= {f"{name} has no recorded proof" for name, observed in said.items() if not observed}
        for name, observed in said.items():
            found.setdefault(name, set()).add(tuple(observed))
    differs = [f"the proof of {name} differs between processes" for name, seen in found.items() if len(seen - {()}) > 1]
    return [*sorted(failed), *differs, *sorted(missing)]


def peak_flags(results: Sequence[RunResult]) -> list[str]:
    """Return sentences on a peak of tensors that does not repeat or is missing, and on figures that were mispredicted.

    Predictions are compared in the first process that differs from them.
    """
    flags = []
    peaks = {result.memory.tensors_peak_bytes for result in results}
    if len(peaks - {None}) > 1:
        flags.append("the peak of tensors differs between processes, but should repeat exactly")
    elif len(peaks) > 1:
        flags.append("the peak of tensors was not measured at every seed")
    return [*flags, *next((said for result in results if (said := mispredicted(result))), [])]
