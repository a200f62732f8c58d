"""Sentences on suspicious results of a comparison: too equal losses, proofs and peaks that do not fit, other machines.

A row that promises a different training run and has the baseline's losses to the last bit took no effect. Two rows that
change training in different ways and have equal losses are as suspect. Losses that break a promise are no flag: they
change the status of their row (`promises`).
"""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations

from assay.analysis.losses.bounds import Yardstick
from assay.analysis.losses.pairs import by_seed, equal_seeds, seeds_text
from assay.analysis.promised import comparable
from assay.config.run import ResolvedRun
from assay.optimizations import Numerics
from assay.optimizations.discovery import all_known, resolve
from assay.proofs.mispredicted import mispredictions
from assay.records.environment import Environment
from assay.records.evidence import WIDE_GROUPS
from assay.records.run import RunResult
from assay.records.study import CellResult

_TIME = re.compile(r"\d[\d.]* (µs|ms|s)\b")
"""A time in the sentence of a proof, which differs between equal processes."""

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


def wide_flags(results: Sequence[RunResult]) -> list[str]:
    """Return a sentence if runs that round have evaluations in float32. In a single run one group may be chance."""
    wide = sum(one.values.wide_groups for one in results if one.values is not None)
    if wide < WIDE_GROUPS:
        return []
    return [f"too equal: {wide} evaluated groups of batches have float32's loss, and not that of fewer bits"]


def _should_differ(run: ResolvedRun, other: ResolvedRun) -> bool:
    """True if two runs of one configuration have techniques that change training in different ways."""
    known = all_known(run) and all_known(other)
    return known and comparable(run, other) and _changes(run) != _changes(other)


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
            said.setdefault(item.optimization, []).append(_TIME.sub("a time", item.observed))
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
    return [*flags, *next((said for result in results if (said := mispredictions(result))), [])]


def same_environment(cells: Sequence[CellResult], environment: Environment | None) -> list[CellResult]:
    """Return the cells whose figures may be compared with those of a baseline in `environment`."""
    return [one for one in cells if not _unlike(one.result, environment)]


def environment_flags(result: RunResult, environment: Environment | None) -> list[str]:
    """Return sentences on a run whose environment is not the baseline's, or that had more threads."""
    return [*_unlike(result, environment), *_more_threads(result, environment)]


def _unlike(result: RunResult, environment: Environment | None) -> list[str]:
    """Reasons not to compare a run with a baseline in `environment`. More processes may have more threads."""
    if environment is None or result.environment is None:
        return []
    names = [
        name for name in result.environment.differs(environment) if name != "threads" or not _more(result, environment)
    ]
    return [f"not compared: the baseline ran with different {', '.join(names)}"] if names else []


def _more(result: RunResult, environment: Environment) -> bool:
    """True if each of several processes had as many threads as the baseline's only process."""
    ranks, threads = result.config.ranks, result.environment.threads if result.environment else 0
    return ranks > 1 and threads == ranks * environment.threads


def _more_threads(result: RunResult, environment: Environment | None) -> list[str]:
    if environment is None or not _more(result, environment):
        return []
    more = result.config.ranks * environment.threads
    return [
        f"its {result.config.ranks} processes used {more} threads in all, and the baseline's process "
        f"{environment.threads}: times compare unequal shares of the machine (threads=null gives the baseline all)"
    ]
