"""The smallest run that still has everything, and the making of its step and loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from assay.config import ResolvedRun, validate
from assay.data import Prepared, validation_windows
from assay.optimizations import resolved
from assay.step.program import MicroBatch, Program, Step
from assay.training.build import baseline, build
from assay.training.checkpoints import checkpoint
from assay.training.evaluation import Evaluation
from assay.training.loop import Loop
from assay.training.probes import ActivationNorms
from assay.training.step_record import Position, StepRecord

CPU = torch.device("cpu")


def tiny(training: dict[str, Any] | None = None, **model: Any) -> ResolvedRun:
    """A run of a two-layer model of width 16 on bytes."""
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 16, "vocab_size": 256}
    values = {"batch_size": 4, "steps": 6, "warmup_steps": 2, "eval_interval": 0, "eval_batches": 2}
    values = {"model": {**shape, **model}, "training": {**values, **(training or {})}, "device": "cpu"}
    return resolved(validate(values))


def step_of(run: ResolvedRun, corpus: Prepared, **seams: Any) -> Step:
    """The baseline's step, with seams replaced."""
    torch.manual_seed(run.seed)
    program: Program = baseline(run, corpus, CPU)
    return build(replace(program, **seams))


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


def weights(step: Step) -> dict[str, torch.Tensor]:
    """A copy of every parameter."""
    return {name: parameter.detach().clone() for name, parameter in step.named_parameters()}
