"""The proof at a run's end: the program has not changed since it was proven at the beginning.

After the last evaluation, the last checkpoint and the memory pass, one more step is traced and discarded. Every
optimization must show its effect again, and the step must have the counts of the first traced one. Weights and
optimizer state are checked before the memory pass, while they are still the trained ones. Each weight must differ from
its initial value, and the state must count the updates that were made. The last evaluation and the last checkpoint must
leave both as they were.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from assay.config import ResolvedRun
from assay.instruments.gradient_statistics import noting
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Optimization
from assay.parallel.process_rank import Ranks
from assay.proofs import dropout
from assay.proofs.later_steps import differences, left_settings
from assay.records.gradients import ModuleGradient
from assay.records.trace import Trace
from assay.step.program import Step
from assay.training.loop import Loop, read, take_step
from assay.training.probes import ActivationNorms
from assay.training.step_record import StepRecord
from assay.training.stops import NoEffect, Unread, WrongValues, is_out_of_memory
from assay.worker.observer import RunObserver
from assay.worker.proof.moved import (
    digests,
    frozen_that_moved,
    never_updated,
    state_digests,
    state_fault,
    unmoved_parameters,
)
from assay.worker.proof.values import ValueCheck
from assay.worker.result import RunFindings


def traced_step(
    step: Step, index: int, probes: ActivationNorms | None, skipped: int | None = None
) -> tuple[StepRecord, Trace]:
    """Trace one step, and return its record and trace; `skipped` updates were left out before it."""
    tracer = StepTracer(step)
    with tracer:
        taken = take_step(tracer.watch(), index, probes)
    (record,) = read(step, [taken])
    return record, tracer.trace(record.loss, record.targets, skipped)


@contextmanager
def check_unchanged(what: str, step: Step, ranks: Ranks) -> Iterator[None]:
    """Raise `WrongValues` if the block changes a weight, the optimizer's state or the random generator's.

    `what` names the block's work for the sentence. All ranks must enter it.
    """
    before = _everything(step)
    yield
    after = _everything(step)
    changed = next((name for name in before | after if before.get(name) != after.get(name)), "")
    if faults := [one for one in ranks.gather(changed) if one]:
        raise WrongValues(f"{what} changed {faults[0]}, which only a training step may change")


def _everything(step: Step) -> dict[str, object]:
    random = {"the state of the random generator": torch.get_rng_state().numpy().tobytes()}
    return {**digests(step), **state_digests(step), **random}


def has_trained(loop: Loop, initial: Mapping[str, int], ranks: Ranks, watched: int) -> None:
    """Raise `NoEffect` if a weight kept its initial value, or the optimizer state does not match the updates made.

    A weight in 16 bits may keep its value because each of its updates is rounded away. If `watched` updates were
    replayed, that was seen, so such a weight may stay. So may one that the loss of a user's own model does not use.
    """
    position, rate = loop.position, loop.step.program.schedule
    updates = position.step - position.skipped_steps
    if updates < 1:
        return
    may_be_unused = loop.run.model.own is not None and watched > 0
    fault = state_fault(loop.step, updates, 1 if may_be_unused else None)
    stayed = unmoved_parameters(loop.step, initial, max(rate(0), rate(position.step - 1)), narrow=not watched)
    if may_be_unused:
        stayed = [name for name in stayed if name not in never_updated(loop.step)]
    if stayed:
        fault = f"{len(stayed)} parameters kept their initial values through the run, {stayed[0]} among them"
    if moved := frozen_that_moved(loop.step, initial):
        fault = f"{len(moved)} frozen parameters changed in the run, {moved[0]} among them"
    _raise_first(ranks, fault)


def faults_of(trace: Trace, step: Step, run: ResolvedRun, ranks: Ranks) -> list[str]:
    """Return what is wrong with a traced step beside its techniques: dropout, masks of ranks, settings that stay.

    All ranks must call it.
    """
    stream = ranks.noise(step.program.parallel.sequence_parts)
    common = dropout.common_masks(trace, stream, ranks.gather)
    return [text for text in (dropout.fault(trace, run), common, left_settings(trace, run)) if text]


def prove_at_end(
    loop: Loop, findings: RunFindings, optimizations: Sequence[Optimization], observer: RunObserver
) -> None:
    """Trace a discarded step at the end of the run, and check its values.

    Raises `NoEffect` if it is not the step that was proven, and `WrongValues` if it computes other values. Earlier
    discarded steps free gathered weights, settle a loss scale, and make an update whose values are checked as well. If
    memory or data run out, a note is added. A run that ended before a step of its own was traced has its only evidence
    from here, and the observer records it.
    """
    run, values, ranks = findings.spec.config, observer.values, loop.ranks
    earlier = values.proof is not None and values.proof.checked
    try:
        last = _last_step(loop, findings.notes, values)
    except WrongValues as fault:
        before = "values were right at the beginning and wrong at the end: " if earlier else ""
        raise WrongValues(f"{before}{fault}") from fault
    if last is None:
        return
    found, findings.gradients = last
    proofs = [one.verify(found, run) for one in optimizations]
    first = findings.trace is None
    for one in proofs if first else ():
        observer.say_evidence(one)
    was = "took no effect" if first else "was proven at the beginning and not at the end"
    lost = [f"{one.optimization} {was}: {one.observed}" for one in proofs]
    faults = [text for text, one in zip(lost, proofs, strict=True) if not one.verdict]
    faults += faults_of(found, loop.step, run, ranks)
    if findings.trace is not None and not faults:
        after_another = findings.first_step_seconds is not None  # a first step also pays for one-time costs
        changed = after_another and differences(findings.trace, found, mixture=run.model.n_expert is not None)
        faults = (
            [f"the step at the end differs from the one that was proven at the beginning: {changed}"] if changed else []
        )
        faults += [text for text in (dropout.repeated_masks(findings.trace, found),) if text]
    _raise_first(ranks, faults[0] if faults else "")
    findings.proven_until = "end"


_Last = tuple[Trace, tuple[ModuleGradient, ...]]
_UPDATES = 2
"""Updates whose values are checked at the end: only the second one shows a moment that is not written back."""


def _last_step(loop: Loop, notes: list[str], values: ValueCheck) -> _Last | None:
    def traced() -> _Last | None:
        loop.discard_until_updated()
        index = loop.position.step + loop.discarded + 1  # a prefetching source only moves forwards
        while True:
            with values.recorded("end", index, _UPDATES):
                kept: list[tuple[StepRecord, Trace]] = []
                scales: list[ModuleGradient] = []
                watched = noting(loop.step, scales) if loop.ranks.world == 1 else loop.step
                plain = values.taking(take_step)(watched, index, loop.probes)
                values.taking(partial(_keeping, kept))(loop.step, index + 1, loop.probes)
                record, trace = kept[0]
                for one in (*read(loop.step, [plain]), record):
                    values.stepped(one)
                if record.skipped:
                    continue
                if not record.finite:
                    return None
                values.conclude()
                return trace, tuple(scales)

    return _unless_spent(traced, notes)


def _keeping(
    kept: list[tuple[StepRecord, Trace]], step: Step, index: int, probes: ActivationNorms | None
) -> StepRecord:
    kept.append(traced_step(step, index, probes))
    return kept[0][0]


def _unless_spent(traced: Callable[[], _Last | None], notes: list[str]) -> _Last | None:
    what = "the step at the end could not be traced"
    try:
        last = traced()
    except Unread as stop:
        notes.append(f"{what}: {stop}")
        return None
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        notes.append(f"{what}: it ran out of memory")
        return None
    if last is None:
        notes.append(f"{what}: its loss or gradient is not finite")
    return last


def _raise_first(ranks: Ranks, fault: str) -> None:
    if faults := [text for text in ranks.gather(fault) if text]:
        raise NoEffect(faults[0])
