"""Caveats of a comparison: times that are not compared, suspicious results, and what it cannot conclude.

Processes of a cell that work while other cells are timed slow all others. Work between two steps belongs to no step. In
both cases bytes and losses stay comparable. One process of a row is enough for the first, since all of them run the
same program. The second is the row's share in all its blocks beyond the controls' own, because a busy machine also
makes the time between steps longer.

A row that promises a different training run and has the baseline's losses to the last bit took no effect. Two rows that
change training in different ways and have equal losses are as suspect. Losses that break a promise are no flag: they
change the status of their row (`losses`).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from assay.analysis.effects import CONTROLS, LEAST_SEEDS, disturbances
from assay.analysis.factors.layout import Change, FactorLayout, effect_name, planned_layout
from assay.analysis.losses import Yardstick, by_seed, comparable, equal_seeds, seeds_text, unheld
from assay.analysis.metrics import Metric
from assay.analysis.metrics.standard import STEP_SECONDS
from assay.analysis.row import Row, seeds_of, usable
from assay.config.run import ResolvedRun
from assay.errors import first_names
from assay.optimizations import Numerics
from assay.optimizations.stack import all_known, resolve
from assay.proofs.mispredicted import mispredictions
from assay.records.evidence import WIDE_GROUPS
from assay.records.run import Environment, RunResult
from assay.records.status import Status
from assay.records.study import BASELINE, CellResult, ComparisonRecord, StudyEnding
from assay.records.timing import BETWEEN_SHARE, OUTSIDE_SHARE, Between, Outside
from assay.units import format_percent

if TYPE_CHECKING:
    from assay.analysis.factors.changes import Model


def outside_of(record: ComparisonRecord, treatment: str) -> Outside | None:
    """Return the most work of a process of a row outside of its turns; None if it was not read."""
    known = [found for one in record.of(treatment) if (found := _outside(record, one))]
    return max(known, key=lambda one: (one.too_much, one.seconds), default=None)


def between_of(record: ComparisonRecord, treatments: Collection[str]) -> Between | None:
    """Return the time between the steps of some rows, over all their blocks; None if it was not read."""
    return Between.of(
        [block for one in record.cells if one.cell.treatment in treatments for block in one.result.speed.blocks]
    )


def ended_claims(record: ComparisonRecord) -> dict[str, list[str]]:
    """Return the sentences on each row, baselines included, whose times are not compared; none without times."""
    if not record.timed:
        return {}
    usual = between_of(record, CONTROLS)
    found = {}
    for name in dict.fromkeys(one.cell.treatment for one in record.cells):
        said = _outside_said(outside_of(record, name))
        if _ranks(record, name) == _ranks(record, BASELINE):  # ranks wait for each other between two steps
            said += _between_said(between_of(record, [name]), usual)
        if said:
            found[name] = [f"times are not compared: {one}" for one in said]
    return found


def comparable_times(metric: Metric, cells: Sequence[CellResult], ended: Collection[str]) -> list[CellResult]:
    """Return the cells whose figures of a timed metric may be compared; bytes of all rows may."""
    return [one for one in cells if metric.unit == "bytes" or one.cell.treatment not in ended]


def claim_caveats(ended: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence if a control is among the rows whose times are not compared."""
    lost = [name for name in CONTROLS if name in ended]
    if not lost:
        return []
    kept = (
        "the other baseline alone is the control of all times"
        if len(lost) < len(CONTROLS)
        else "no row has a change of time"
    )
    return [f"Times of {' and of '.join(lost)} are not compared, so {kept}: {ended[lost[0]][0]}."]


def _ranks(record: ComparisonRecord, treatment: str) -> set[int]:
    return {one.cell.run.ranks for one in record.of(treatment)}


def _outside(record: ComparisonRecord, one: CellResult) -> Outside | None:
    """Work of one cell outside of its own turns, summed over its rounds; None if it was not read."""
    name = one.cell.name
    mine = [each for each in record.rounds if each.wave == one.wave and name in each.outside_seconds]
    if not mine:
        return None
    others = sum(sum(each.turn_seconds.values()) - each.turn_seconds.get(name, 0.0) for each in mine)
    used = sum(each.outside_seconds[name] for each in mine)
    return Outside(seconds=used, of_seconds=others, ranks=one.cell.run.ranks)


def _outside_said(found: Outside | None) -> list[str]:
    if found is None or not found.too_much:
        return []
    return [
        f"its processes used {found.seconds:.2g} processor seconds while other runs were timed for "
        f"{found.of_seconds:.2g} s, more than {100 * OUTSIDE_SHARE * found.ranks:.0f} %"
    ]


def _between_said(found: Between | None, usual: Between | None) -> list[str]:
    if found is None:
        return []
    share = usual.seconds / usual.of_seconds if usual is not None and usual.of_seconds else 0.0
    if found.too_much(share):
        return [
            f"{found.seconds:.2g} s passed between steps that took {found.of_seconds:.2g} s, and no step's clock has "
            f"them; the baselines' share is {100 * share:.1f} %, and {100 * BETWEEN_SHARE:.0f} points more are allowed"
        ]
    if usual is not None and found.longer_than(usual):
        gap, theirs = (1e3 * (one.gap_seconds or 0.0) for one in (found, usual))
        return [
            f"{gap:.2f} ms pass between two of its steps, and {theirs:.2f} ms between two of a baseline: no step's "
            "clock has the difference"
        ]
    return []


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
    wide = sum(one.proof.values.wide_groups for one in results if one.proof.values is not None)
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
        for item in result.proof.evidence:
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


def environment_flags(record: ComparisonRecord, result: RunResult, environment: Environment | None) -> list[str]:
    """Return sentences on a run whose environment is not the baseline's, or whose times had more threads."""
    return [*_unlike(result, environment), *(_more_threads(result, environment) if record.timed else ())]


def _unlike(result: RunResult, environment: Environment | None) -> list[str]:
    """Reasons not to compare a run with a baseline in `environment`. More processes may have more threads."""
    if environment is None or result.provenance.environment is None:
        return []
    names = [
        name
        for name in result.provenance.environment.differs(environment)
        if name != "threads" or not _more(result, environment)
    ]
    return [f"not compared: the baseline ran with different {', '.join(names)}"] if names else []


def _more(result: RunResult, environment: Environment) -> bool:
    """True if each of several processes had as many threads as the baseline's only process."""
    ranks, threads = result.config.ranks, result.provenance.environment.threads if result.provenance.environment else 0
    return ranks > 1 and threads == ranks * environment.threads


def _more_threads(result: RunResult, environment: Environment | None) -> list[str]:
    if environment is None or not _more(result, environment):
        return []
    more = result.config.ranks * environment.threads
    return [
        f"its {result.config.ranks} processes used {more} threads in all, and the baseline's process "
        f"{environment.threads}: times compare unequal shares of the machine (threads=null gives the baseline all)"
    ]


_MOST = 12
"""Most names in one list."""


def cut_short(record: ComparisonRecord) -> list[str]:
    """Return sentences on what a study that its limit of time ended cannot conclude."""
    done = {name: usable(record.of(name)) for name in record.treatments}
    fewer = [
        f"{name} ({len(cells)} of {record.planned})" for name, cells in done.items() if 0 < len(cells) < record.planned
    ]
    none = [name for name, cells in done.items() if not cells]
    seeds = {name: len(seeds_of(cells)) for name, cells in done.items()}
    wide = [name for name, count in seeds.items() if 0 < count < LEAST_SEEDS <= len(record.seeds)]
    listed = first_names(_not_begun(record), _MOST, "; ")
    said = [f"The limit of time ended the study{before(record)}{f': {listed}' if listed else ''}."]
    if fewer:
        said.append(f"Fewer processes than planned: {first_names(fewer, _MOST)}.")
    if wide:
        said.append(f"No interval of the loss, because fewer than three seeds ran: {first_names(wide, _MOST)}.")
    if none:
        said.append(f"No process, so no conclusion: {first_names(none, _MOST)}.")
    if lost := [effect_name(one) for one in lost_effects(record)]:
        said.append(
            f"Effects that the rows do not determine, because combinations are missing: {first_names(lost, _MOST)}."
        )
    return said


def lost_effects(record: ComparisonRecord) -> list[tuple[Change, ...]]:
    """Return the effects that the planned rows determine and those that ran do not; the simplest are first."""
    design = planned_layout(record)
    rows = [name for name in design.rows if name != BASELINE]
    ran = [name for name in rows if usable(record.of(name))]
    whole, found = _model(design, rows), _model(design, ran)
    known = {term.changes for term in found.terms} if found else set()
    return [term.changes for term in whole.terms if term.changes not in known] if whole else []


def _model(design: FactorLayout, rows: Sequence[str]) -> "Model | None":
    """Return the effects that some rows determine; which these are does not depend on the rows' errors."""
    import numpy as np

    from assay.analysis.factors.changes import model

    return model(design, rows, np.eye(len(rows))) if rows else None


def before(record: ComparisonRecord) -> str:
    """Return how many cells could not begin, to be put after "ended"; empty if all did."""
    held = len(record.held_back)
    return f" before {held} of {held + len(record.cells) + len(record.nudged)} runs could begin" if held else ""


def _not_begun(record: ComparisonRecord) -> list[str]:
    """Return the cells that did not begin; seeds and processes of which none began are named once."""
    begun = {one.cell.group for one in record.cells}
    names = (one.name if one.group in begun else f"all at {one.group}" for one in record.held_back)
    return list(dict.fromkeys(names))


def caveats(
    record: ComparisonRecord, again: Row, yardstick: Yardstick, ended: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return sentences on the comparison as a whole; `ended` has the rows whose times are not compared, and why."""
    found = [*record.doubts, *_remarks_on_done_runs(record), *record.protocol.notes, *claim_caveats(ended)]
    if record.ending is StudyEnding.INTERRUPTED:
        found.append("The comparison was interrupted; processes that had finished by then are shown.")
    if record.ending is StudyEnding.BUDGET_REACHED:
        found += _cut_short(record)
    if not again.effects:
        found.append("The A/A pair is missing, so the difference between two identical runs is not known.")
    step = again.effects.get(STEP_SECONDS.name)
    if step and step.interval and not step.interval[0] <= 0 <= step.interval[1]:
        found.append(
            f"Two equal baselines differed in step time by {format_percent(step.change)}, more than their interval "
            "explains. That happens by chance in one comparison of twenty; compare again if it matters."
        )
    found += [*disturbances(record), *_begun_in_two_ways(record)]
    if len(record.seeds) < 3:
        found.append("Fewer than three seeds: losses are printed as their values, without an interval.")
    return [*found, *unheld(record, yardstick)]


def _remarks_on_done_runs(record: ComparisonRecord) -> list[str]:
    """Return what the records of finished runs say of themselves, such as that one is not sealed."""
    done = (one for one in record.cells if one.result.status is Status.DONE and one.result.reason)
    return [f"{one.cell.name}: {one.result.reason}." for one in done]


def _begun_in_two_ways(record: ComparisonRecord) -> list[str]:
    """Return a sentence if some cells were forked and others started, as after the death of the fork server."""
    started, forked = (sum(one.forked is how for one in record.cells) for how in (False, True))
    if not started or not forked:
        return []
    return [
        f"{started} of {started + forked} runs started a process of their own, because the server that forked the "
        "others had ended or could not fork: process memory is not comparable between the two."
    ]


def _cut_short(record: ComparisonRecord) -> list[str]:

    return cut_short(record)
