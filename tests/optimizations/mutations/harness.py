"""One small run, honest or with a mutant in it, and what the proof says about it.

The run does what a real one does, in small: three steps whose values are held against a reference, one traced step, and
where a late mutant is looked for an evaluation, a saved state, two more steps and a second trace. Beside the failures of
the proof stands everything that can be seen of the run. A mutant that leaves all of that as it was is no mutant.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config import ModelConfig, Run, Spec, TrainingConfig
from assay.data.tokenizers import ByteTokenizer
from assay.measure.moved import state_fault
from assay.measure.trace import StepTracer
from assay.optimizations import catalogue, expected_of, normalize, optimizations_of, resolve
from assay.parallel.ranks import ALONE, Ranks
from assay.parallel.shards import local
from assay.step import Trace
from assay.step.program import Step
from assay.training.build import baseline, build
from assay.training.evaluation import evaluate
from assay.training.loop import StepRecord, read, take_step
from assay.training.state import optimizer_tensors
from assay.training.taken import Taken
from assay.values.check import check_values
from assay.values.recorded import Recorded
from assay.values.recorder import StepRecorder
from estimate.built import RandomData
from optimizations.laboratory import SHAPE
from optimizations.mutations.mutant import LATE, Break, Mutant

VERIFY, VALUES, SECOND = "verify", "values", "second trace"
FIRST = 3
"""Steps whose values are checked at the beginning."""
"""The parts of the proof; each failure begins with the part that found it."""

TRAINING = TrainingConfig(batch_size=8, steps=20, warmup_steps=2, gradient_clip=0.0)
_UNSTEADY = ("data_seconds", "graph_breaks")
"""Of a trace: figures that two equal runs of one process need not share."""


@dataclass
class Account:
    """What came of one run."""

    failures: list[str] = field(default_factory=list)
    """Of the proof; empty: proven."""
    seen: dict[str, Any] = field(default_factory=dict)
    """Losses, norms, weights and traces, as plain values."""


def proof_failures(run: Run, mutate: Break, *, late: bool = False, ranks: Ranks = ALONE) -> list[str]:
    """What the proof holds against a run with `mutate` in it; empty: proven."""
    return account(run, mutate, late=late, ranks=ranks).failures


def account(run: Run, mutate: Break, *, late: bool = False, ranks: Ranks = ALONE) -> Account:
    """Train the run for a few steps with `mutate` in it, and hold the proof against it."""
    found = Account()
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        torch.manual_seed(run.seed + ranks.noise())
        step = built(run, ranks)
        taken = _recorded(step, run, ranks, found, range(FIRST), VALUES)
        records = _traced(step, run, taken, VERIFY, found)
        if late:
            _saved_and_evaluated(step, found)
            taken = [take_step(step, index) for index in range(LATE, LATE + 2)]
            updates = sum(not one.skipped for one in (*records, *read(step, taken)))
            if fault := state_fault(step, updates):
                found.failures.append(f"{SECOND}: {fault}")
            taken = _recorded(step, run, ranks, found, range(LATE + 2, LATE + 3), SECOND)
            _traced(step, run, taken, SECOND, found)
    found.seen["weights"] = {name: _digest(local(one)) for name, one in step.named_parameters()}
    return found


def _recorded(step: Step, run: Run, ranks: Ranks, found: Account, steps: range, part: str) -> list[StepRecord | Taken]:
    """Do some steps, and hold their batches, losses, gradients and updates against the references."""
    place = Path(ranks.gather(tempfile.mkdtemp())[0])
    recorder = StepRecorder(step, place, ranks, steps.start)
    if run.model.dropout > 0 and not expected_of(run).same_noise:
        recorder.probe()
    taken = []
    for index in steps:
        watched = recorder.watch(step, index)
        with recorder.hooked():
            taken.append(take_step(watched, index))
    for record in read(step, taken):
        recorder.stepped(record.step, record.loss, record.log_gradient_norm, record.learning_rate)
    recorder.close()
    ranks.meet()
    if ranks.rank == 0:
        with noise_kept():
            proof = check_values(Recorded(place, ranks.world), run, Corpus(run), step.program.device)  # type: ignore[arg-type]
        found.failures.extend(f"{part}: {one}" for one in proof.failures)
        shutil.rmtree(place)
    return taken


@contextmanager
def noise_kept() -> Iterator[None]:
    """The random state inside is put back after."""
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


class Corpus(RandomData):
    """Random tokens, and a tokenizer for what is streamed beside them."""

    tokenizer = ByteTokenizer()


def built(run: Run, ranks: Ranks = ALONE) -> Step:
    """The run's step, optimizations applied, on its device."""
    device = torch.device("cuda" if run.device == "cuda" else "cpu")
    program = baseline(run, Corpus(run), device, None, ranks)  # type: ignore[arg-type]
    for one in optimizations_of(run):
        program = one.apply(program, run)
    return build(program)


def _traced(step: Step, run: Run, taken: Sequence[StepRecord | Taken], part: str, found: Account) -> list[StepRecord]:
    """Do one more step under the tracer; `taken` are the steps before it, which are read together with it."""
    with StepTracer(step) as tracer:
        last = take_step(tracer.watch(), taken[-1].step + 1)
    records = read(step, [*taken, last])
    trace = tracer.trace(records[-1].loss, records[-1].tokens)
    evidence = [one.verify(trace, run) for one in optimizations_of(run)]
    found.failures.extend(f"{part}: {one.observed}" for one in evidence if not one.verdict)
    found.seen[part] = [(one.loss, one.log_gradient_norm, one.learning_rate, one.loss_scale) for one in records]
    found.seen[f"{part}, operations"] = _plain(trace)
    return records


def _saved_and_evaluated(step: Step, found: Account) -> None:
    windows = [(ids[:7], targets[:7]) for ids, targets in step.program.batches(0, (0, 1))]
    found.seen["evaluation"] = evaluate(step, lambda: windows, 1.0, LATE).loss
    optimizer_tensors(step)


def _plain(trace: Trace) -> Any:
    return json.loads(trace.model_dump_json(exclude=set(_UNSTEADY)))


def _digest(tensor: torch.Tensor) -> str:
    return hashlib.blake2b(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def techniques() -> list[str]:
    """Those for which there are mutants."""
    return [name for name in catalogue() if (Path(__file__).parent / f"{name}.py").exists()]


@cache
def mutants_of(technique: str) -> dict[str, Mutant]:
    """By name."""
    found = import_module(f"optimizations.mutations.{technique}").MUTANTS
    assert len({one.name for one in found}) == len(found), f"two mutants of {technique} have one name"
    return {one.name: one for one in found}


def run_of(technique: str, mutant: Mutant | None = None) -> Run:
    """The small run of a technique, or of one of its mutants."""
    home = import_module(f"optimizations.mutations.{technique}")
    changes = [getattr(home, "RUN", {}), mutant.run if mutant else {}]
    model, training = (
        {**base.model_dump(), **{key: value for one in changes for key, value in one.get(part, {}).items()}}
        for part, base in (("model", SHAPE), ("training", TRAINING))
    )
    stack = {"stack": technique, **changes[0], **changes[1]}["stack"]
    specs = tuple(resolve(one).spec() for one in Spec.parse_stack(stack))
    divided = any(resolve(one).axes() for one in specs)
    on_gpu = mutant is not None and mutant.gpu
    return normalize(
        Run(
            model=ModelConfig(**model),
            training=TrainingConfig(**training),
            device="cuda" if on_gpu else "cpu",
            ranks=2 if divided else 1,
            optimizations=specs,
        )
    )
