"""A real step of a run on random tokens, for holding predictions against."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from assay.config import Run
from assay.measure.memory.memory_pass import live_tensor_bytes
from assay.measure.memory.tensor_peak import tensor_peak
from assay.model import attention, rotary
from assay.optimizations import optimizations_of
from assay.optimizations.vocab_padding import model as padding
from assay.step.program import MicroBatch, Program, Step
from assay.training.build import baseline, build
from assay.training.gradients import cut
from assay.training.loop import train_step

CPU = torch.device("cpu")


@dataclass
class RandomShard:
    """A token stream in memory."""

    ids: np.ndarray[Any, np.dtype[np.uint16]]

    def __len__(self) -> int:
        return len(self.ids)


class RandomData:
    """Stands in for a prepared corpus."""

    def __init__(self, run: Run) -> None:
        ids = np.random.default_rng(0).integers(run.model.vocabulary, size=3 * run.model.context_length + 999)
        self.train = self.validation = RandomShard(ids.astype(np.uint16))


def build_step(run: Run, data: RandomData | None = None) -> Step:
    """The run's step, optimizations applied, made real on its device."""
    device = torch.device("cuda" if run.device == "cuda" else "cpu")
    program: Program = baseline(run, data or RandomData(run), device)  # type: ignore[arg-type]
    for optimization in optimizations_of(run):
        program = optimization.apply(program, run)
    return build(program)


def micro_batches(step: Step, index: int = 0) -> Sequence[MicroBatch]:
    """What the step trains on at `index`."""
    return cut(step.program.batches(index, step.program.parallel.share), step.program.micro_batches)


def measured_peak(run: Run, data: RandomData | None = None) -> tuple[Step, int, str]:
    """The run's step on a CPU after two, most bytes of tensors in the second, and when; others' tensors left out."""
    forget_tables()
    before = live_tensor_bytes(CPU)
    step = build_step(run, data)
    train_step(step, 0)
    live = live_tensor_bytes(CPU) - before
    peak = tensor_peak(lambda: train_step(step, 1) and None, "cpu")
    return step, live + peak.above_start_bytes, peak.instant


def forget_tables() -> None:
    """Masks and tables that an earlier step of this process left would be missing from what the next one makes."""
    for table in (attention._future, padding._barred, rotary._tables):
        table.cache_clear()
