"""The values of some steps of a run, recorded and held against their references as a real run does it."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from assay.config import Run
from assay.optimizations import expected_of
from assay.parallel.process_rank import Ranks
from assay.step.program import Step
from assay.training.step_record import StepRecord
from assay.values.check import check_values
from assay.values.masks import source_of_masks
from assay.values.recorded import Recorded
from assay.values.recorder import STEPS, StepRecorder

Taken = TypeVar("Taken")
_LAST = 2
"""Updates that are checked at a run's end."""


class ValueRecord:
    """Of a run's first steps, or of two steps from `first` on."""

    def __init__(self, step: Step, run: Run, ranks: Ranks, data: Any, first: int = 0) -> None:
        self._own_place = tempfile.TemporaryDirectory(prefix="assay-mutant-")
        self._place = Path(ranks.gather(self._own_place.name)[0])
        self._step, self._run, self._ranks, self._data = step, run, ranks, data
        expected, updates = expected_of(run), _LAST if first else STEPS
        masks = source_of_masks(run, expected, step.program.device)
        rounds = expected.rule.rounds_state
        self._recorder = StepRecorder(step, self._place, ranks, first, updates, rounds_state=rounds, masks=masks)

    def take(self, index: int, take: Callable[[Step, int], Taken]) -> Taken:
        """Do one step as `take` does, and record it."""
        watched = self._recorder.watch(self._step, index)
        with self._recorder.hooked():
            return take(watched, index)

    def evaluate(self) -> None:
        """Evaluate the present weights on random tokens, and record it."""
        model = self._run.model
        shape = (self._run.training.batch_size, model.context_length + 1)
        tokens = torch.randint(model.vocabulary, shape, generator=torch.Generator().manual_seed(5))
        tokens = tokens.to(self._step.program.device)
        windows = [(tokens[:, :-1], tokens[:, 1:])]
        sums = self._step.program.evaluate(self._step, windows)
        self._recorder.evaluated({0: sums}, lambda group: windows)

    def failures(self, records: Sequence[StepRecord]) -> list[str]:
        """What the references say of what was recorded and reported; only rank 0 asks them."""
        for one in records:
            self._recorder.stepped(one.step, one.loss, one.log_gradient_norm, one.learning_rate)
        self._recorder.close()
        self._ranks.meet()
        if self._ranks.rank > 0:
            return []
        recorded = Recorded(self._place, self._ranks.world)
        with _noise_kept():
            proof = check_values(recorded, self._run, self._data, self._step.program.device)
        shutil.rmtree(self._place)
        return list(proof.failures)


@contextmanager
def _noise_kept() -> Iterator[None]:
    """The random state inside is put back after."""
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)
