"""One small run, honest or with a mutant in it, and what the proof says about it.

The run does what a real one does, in small: three steps whose values are held against references, and one traced step.
Where a late mutant is looked for follow an evaluation, a saved state, two more steps, and a last one that is traced and
has its values checked. Beside the failures of the proof stands everything that can be seen of the run: a mutant that
leaves all of that as it was is no mutant.

References are computed in the process of the mutant, by the source that it has changed, as they would be in a real run.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from assay.config import Run
from assay.data.tokenizers import ByteTokenizer
from assay.instruments.step_trace import StepTracer
from assay.optimizations import optimizations_of, resolve_run
from assay.parallel.dtensor import local
from assay.parallel.process_rank import ALONE, Ranks
from assay.proofs.later_steps import differences
from assay.records.trace import Trace
from assay.step.program import Step
from assay.training.build import baseline, build
from assay.training.checkpoints.state import optimizer_tensors
from assay.training.evaluation import evaluate
from assay.training.loop import read, take_step
from assay.training.queued_step import Taken
from assay.training.step_record import StepRecord
from assay.training.stops import WrongValues
from assay.values.rate_rule import LearningRates
from assay.worker.proof.ending import faults_of
from assay.worker.proof.moved import digests, frozen_that_moved, state_fault, unmoved_parameters
from optimizations.mutations.mutant import LATE, Break
from optimizations.mutations.values import ValueRecord
from support.random_data import RandomData

VERIFY, VALUES, SECOND = "verify", "values", "second trace"
"""The parts of the proof; each failure begins with the part that found it."""
UNCHECKED = "unchecked"
"""In their place: the value check broke off. A real run is then not refused."""

_UNSTEADY = {"data_seconds", "graph_breaks"}
"""Of a trace: figures that two equal runs of one process need not share."""


@dataclass
class Account:
    """What came of one run."""

    failures: list[str] = field(default_factory=list)
    """Of the proof; empty: proven."""
    seen: dict[str, Any] = field(default_factory=dict)
    """Losses, norms, weights and traces, as plain values."""

    def fail(self, part: str, *said: str) -> None:
        """Note what a part of the proof found; what is empty is none."""
        self.failures.extend(f"{part}: {one}" for one in said if one)


class Corpus(RandomData):
    """Random tokens, and a tokenizer for what is streamed beside them."""

    tokenizer = ByteTokenizer()


def proof_failures(run: Run, mutate: Break, *, late: bool = False, ranks: Ranks = ALONE) -> list[str]:
    """What the proof holds against a run with `mutate` in it; empty: proven."""
    return account(run, mutate, late=late, ranks=ranks).failures


def account(run: Run, mutate: Break, *, late: bool = False, ranks: Ranks = ALONE) -> Account:
    """Train the run for a few steps with `mutate` in it, and hold the proof against it."""
    found = Account()
    if any(one.name == "compile" for one in run.optimizations):
        # A compiler counts how often a function was compiled anew in the whole process, and gives up after eight times.
        torch.compiler.reset()
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        torch.manual_seed(run.seed)
        step = built(run, ranks)
        torch.manual_seed(run.seed + ranks.noise(step.program.parallel.sequence_parts))
        initial = digests(step)
        trace = _beginning(step, run, ranks, found)
        if late:
            _saved_and_evaluated(step, found)
            _end(step, run, ranks, found, trace, initial)
    found.seen["weights"] = {name: _digest(local(one)) for name, one in step.named_parameters()}
    return found


def built(run: Run, ranks: Ranks = ALONE) -> Step:
    """The run's step, optimizations applied, on its device."""
    device = torch.device("cuda" if run.device == "cuda" else "cpu")
    program = baseline(run, Corpus(run), device, None, ranks)  # type: ignore[arg-type]
    for one in optimizations_of(run):
        program = one.apply(program, run)
    return build(program)


def _beginning(step: Step, run: Run, ranks: Ranks, found: Account) -> Trace:
    """Three steps whose values are checked, and a traced one."""
    record = ValueRecord(step, run, ranks, Corpus(run))
    taken = [record.take(index, take_step) for index in range(LATE - 1)]
    tracer, last = _traced(step, LATE - 1)
    records = read(step, [*taken, last])
    _checked(found, VALUES, record, records)
    return _judged(step, run, ranks, found, VERIFY, records, tracer)


def _end(step: Step, run: Run, ranks: Ranks, found: Account, first: Trace, initial: dict[str, int]) -> None:
    """What a run's weights and state have become, and a last step that is traced and checked."""
    taken = [take_step(step, index) for index in (LATE, LATE + 1)]
    rate, done = step.program.schedule, LATE + 2
    found.fail(
        SECOND, *(f"{name} never moved" for name in unmoved_parameters(step, initial, max(rate(0), rate(done - 1))))
    )
    found.fail(SECOND, *(f"frozen {name} moved" for name in frozen_that_moved(step, initial)))
    found.fail(SECOND, state_fault(step, done))
    record = ValueRecord(step, run, ranks, Corpus(run), done)
    record.evaluate()
    taken.append(record.take(done, take_step))
    tracer, last = record.take(done + 1, _traced)
    records = read(step, [*taken, last])
    _checked(found, f"{SECOND}, {VALUES}", record, records)
    trace = _judged(step, run, ranks, found, SECOND, records, tracer)
    found.fail(SECOND, differences(first, trace, mixture=run.model.n_expert is not None))


def _checked(found: Account, part: str, record: ValueRecord, records: Sequence[StepRecord]) -> None:
    try:
        found.fail(part, *record.failures(records))
    except (RuntimeError, LookupError, ValueError) as error:
        found.fail(UNCHECKED, f"{type(error).__name__}: {error}")


def _traced(step: Step, index: int) -> tuple[StepTracer, StepRecord | Taken]:
    """Do one step under the tracer."""
    tracer = StepTracer(step)
    with tracer:
        taken = take_step(tracer.watch(), index)
    return tracer, taken


def _judged(
    step: Step, run: Run, ranks: Ranks, found: Account, part: str, records: Sequence[StepRecord], tracer: StepTracer
) -> Trace:
    """What each technique of the run says of a trace."""
    trace = tracer.trace(records[-1].loss, records[-1].tokens)
    evidence = [one.verify(trace, run) for one in optimizations_of(run)]
    found.fail(part, *(one.observed for one in evidence if not one.verdict))
    found.fail(part, *faults_of(trace, step, resolve_run(run), ranks))
    found.fail(part, *_wrong_rates(run, records))
    found.seen[part] = [(one.loss, one.log_gradient_norm, one.learning_rate, one.loss_scale) for one in records]
    found.seen[f"{part}, operations"] = json.loads(trace.model_dump_json(exclude=_UNSTEADY))
    return trace


def _wrong_rates(run: Run, records: Sequence[StepRecord]) -> Iterator[str]:
    """Yield a sentence on each step whose learning rate is not the schedule's."""
    rates = LearningRates(resolve_run(run))
    for one in records:
        try:
            rates.hold(one.step, one.learning_rate)
        except WrongValues as error:
            yield str(error)


def _saved_and_evaluated(step: Step, found: Account) -> None:
    device = step.program.device
    windows = [(ids[:7].to(device), targets[:7].to(device)) for ids, targets in step.program.batches(0, (0, 1))]
    found.seen["evaluation"] = evaluate(step, lambda: windows, 1.0, LATE).loss
    optimizer_tensors(step)


def _digest(tensor: torch.Tensor) -> str:
    octets = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(octets, digest_size=8).hexdigest()
