"""Steps that are really built: of a run on random tokens or on a corpus, what they hold, and their first losses."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from assay.config import ResolvedRun, Run
from assay.data import Prepared, validation_windows
from assay.instruments.memory.memory_pass import live_tensor_bytes
from assay.instruments.memory.tensor_peak import tensor_peak
from assay.instruments.step_trace import StepTracer
from assay.model import attention, balance, nf4
from assay.optimizations import optimizations_of
from assay.optimizations.vocab_padding import padded_model as padding
from assay.records.trace import Trace
from assay.step.program import MicroBatch, Program, Step
from assay.training.build import baseline, build
from assay.training.evaluation import Evaluation
from assay.training.gradients import cut, summed_loss
from assay.training.loop import Loop, read, take_step, train_step
from assay.training.probes import ActivationNorms, RouterStatistics
from assay.training.step_record import Position, StepRecord
from support.random_data import RandomData

CPU = torch.device("cpu")


def build_step(run: Run, data: RandomData | Prepared | None = None) -> Step:
    """The run's step, optimizations applied, made real on its device."""
    device = torch.device("cuda" if run.device == "cuda" else "cpu")
    program: Program = baseline(run, data or RandomData(run), device)  # type: ignore[arg-type]
    for optimization in optimizations_of(run):
        program = optimization.apply(program, run)
    return build(program)


def micro_batches(step: Step, index: int = 0) -> Sequence[MicroBatch]:
    """What the step trains on at `index`."""
    return cut(step.program.batches(index, step.program.parallel.share), step.program.micro_batches)


def losses(run: Run, steps: int = 3) -> list[float]:
    """The first losses of a run."""
    torch.manual_seed(run.seed)  # dropout's noise
    step = build_step(run)
    return [train_step(step, index).loss for index in range(steps)]


def traced(run: Run) -> Trace:
    """The second step of a run, traced."""
    return observed(run, 2)[1]


def observed(run: Run, steps: int = 3) -> tuple[list[float], Trace]:
    """The first losses of a run, and its second step, traced; watching it changes no loss."""
    torch.manual_seed(run.seed)
    step = build_step(run)
    found = [train_step(step, 0).loss]
    with StepTracer(step) as tracer:
        taken = take_step(tracer.watch(), 1)
    (record,) = read(step, [taken])
    trace = tracer.trace(record.loss, record.tokens)
    return [*found, record.loss, *(train_step(step, index).loss for index in range(2, steps))], trace


def plain(run: Run) -> tuple[list[float], Trace]:
    """Five losses of a run without its optimizations, and its trace; computed once for all tests that compare."""
    return _plain(run.model_copy(update={"optimizations": ()}).model_dump_json())


@cache
def _plain(run: str) -> tuple[list[float], Trace]:
    return observed(ResolvedRun.model_validate_json(run), 5)


def saved_bytes(step: Step) -> int:
    """Slow and plain: hold every storage that autograd packs, so that no address is used twice."""
    parameters = {parameter.untyped_storage().data_ptr() for _, parameter in step.named_parameters()}
    held: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            held[storage.data_ptr()] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        summed_loss(step, micro_batches(step)[0])
    return sum(storage.nbytes() for storage in held.values())


def measured_peak(run: Run, data: RandomData | None = None) -> tuple[Step, int, str]:
    """The run's step on a CPU after two, most bytes of tensors in the second, and when; others' tensors left out."""
    forget_tables()
    before = live_tensor_bytes(CPU)
    step = build_step(run, data)
    probes = ActivationNorms(step)
    RouterStatistics(step)
    train_step(step, 0, probes)
    live = live_tensor_bytes(CPU) - before
    peak = tensor_peak(lambda: train_step(step, 1, probes) and None, "cpu")
    return step, live + peak.above_start_bytes, peak.instant


def forget_tables() -> None:
    """Masks, tables and a gradient that an earlier step left would be missing from what the next one makes."""
    balance._factor.noted = None
    for table in (attention.future, padding._barred, attention._tables, nf4._pairs):
        table.cache_clear()


def step_of(run: ResolvedRun, corpus: Prepared, **seams: Any) -> Step:
    """The baseline's step, with seams replaced."""
    torch.manual_seed(run.seed)
    program: Program = baseline(run, corpus, CPU)
    return build(replace(program, **seams))


def weights(step: Step) -> dict[str, torch.Tensor]:
    """A copy of every parameter."""
    return {name: parameter.detach().clone() for name, parameter in step.named_parameters()}


@dataclass
class Watcher:
    """An observer that keeps what it is told; `stop_after` steps it asks to stop."""

    records: list[StepRecord] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    progress: list[tuple[int, int]] = field(default_factory=list)
    stop_after: int | None = None

    def stepped(self, record: StepRecord) -> None:
        self.records.append(record)

    def evaluated(self, evaluation: Evaluation) -> None:
        self.evaluations.append(evaluation)

    def saved(self, folder: Path, step: int) -> None:
        assert folder.name == f"step-{step:08d}"

    def progressed(self, done: int, total: int) -> None:
        self.progress.append((done, total))

    def interrupted(self) -> bool:
        return self.stop_after is not None and len(self.records) >= self.stop_after

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        self.phases.append(phase)
        yield


def loop_of(run: ResolvedRun, step: Step, corpus: Prepared, folder: Path, position: Position | None = None) -> Loop:
    """A loop from a position on, that saves into `folder` and is watched by a `Watcher`."""
    from assay.training.checkpoints import checkpoint  # the kit for a GPU has no safetensors

    position = position or Position()

    def windows() -> Iterator[MicroBatch]:
        for ids, targets in validation_windows(corpus.validation, run.model.context_length, 4, 2):
            yield torch.from_numpy(ids), torch.from_numpy(targets)

    return Loop(
        run=run,
        step=step,
        position=position,
        probes=ActivationNorms(step),
        windows=windows,
        bytes_per_token=corpus.bytes_per_token,
        save=lambda now: checkpoint.save(folder, step, now, "test"),
        observer=Watcher(),
        saved_at=position.step,
    )
