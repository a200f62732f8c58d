"""The comparison of micro-batches' gradients that a run records at its end."""

import shutil
from dataclasses import dataclass, field

import pytest

from assay import api
from assay.analysis.metrics.gradients import GRADIENT_COSINE, GRADIENT_NOISE_SCALE
from assay.parallel.ranks import ALONE, Ranks
from assay.store.run_folder import RunFolder
from assay.training.stops import Interrupted
from assay.worker.ending.gradients import add_gradient_probe
from assay.worker.result import Findings
from support.comparisons import record
from support.trained import Trained

MICRO_BATCHES = 6


@dataclass
class Told:
    """Phases and channel of a run, of which a stop is requested after some gradients."""

    stop_after: int = 1000
    parts: list[tuple[int, int]] = field(default_factory=list)

    def progressed(self, done: int, total: int) -> None:
        self.parts.append((done, total))

    @property
    def interrupted(self) -> bool:
        return len(self.parts) >= self.stop_after


def probed(folder: RunFolder, told: Told | None = None, ranks: Ranks = ALONE) -> Findings:
    """Findings of a run that asks for the comparison."""
    told = told or Told()
    spec = folder.spec()
    training = spec.config.training.model_copy(update={"gradient_probe": MICRO_BATCHES})
    run = spec.config.model_copy(update={"training": training})
    findings = Findings(spec.model_copy(update={"config": run}), phases=told)
    add_gradient_probe(findings, folder, ranks, told)
    return findings


def test_it_is_that_of_the_command_at_the_newest_checkpoint(trained: Trained) -> None:
    folder = trained(3)
    told = Told()
    findings = probed(folder, told)
    assert findings.gradient_probe == api.gradients(folder.id, micro_batches=MICRO_BATCHES)
    assert findings.gradient_probe.steps == 3
    assert told.parts == [(done, 2 * MICRO_BATCHES) for done in range(1, 2 * MICRO_BATCHES + 1)]
    assert findings.notes == []


def test_a_stop_ends_it_at_once_and_says_that_all_steps_are_kept(trained: Trained) -> None:
    told = Told(stop_after=2)
    with pytest.raises(Interrupted, match="after all steps; its last checkpoint is kept"):
        probed(trained(3), told)
    assert len(told.parts) == 2


@dataclass(frozen=True)
class Second(Ranks):
    """Rank 1, which hears this from rank 0."""

    rank: int = 1
    heard: str = ""

    def gather(self, text: str) -> list[str]:
        return [self.heard, text]


def test_only_rank_0_computes_and_all_ranks_hear_of_its_stop(trained: Trained) -> None:
    told = Told()
    findings = probed(trained(3), told, Second())
    assert (findings.gradient_probe, findings.notes, told.parts) == (None, [], [])
    with pytest.raises(Interrupted):
        probed(trained(3), told, Second(heard="interrupted"))


def test_a_lost_checkpoint_is_a_note(trained: Trained) -> None:
    folder = trained(3)
    shutil.rmtree(folder.checkpoints)
    findings = probed(folder)
    assert findings.gradient_probe is None
    assert findings.notes[0].startswith("gradients of micro-batches were not compared: ")


def test_metrics_are_those_of_the_record(trained: Trained) -> None:
    result = next(one.result for one in record().cells if one.result is not None)
    assert (GRADIENT_COSINE.of_run(result), GRADIENT_NOISE_SCALE.of_run(result)) == (None, None)
    probe = probed(trained(3)).gradient_probe
    assert probe is not None
    known = result.model_copy(update={"gradient_probe": probe})
    scale = None if probe.noise_scale is None else probe.noise_scale.sequences
    assert (GRADIENT_COSINE.of_run(known), GRADIENT_NOISE_SCALE.of_run(known)) == (probe.mean_cosine, scale)
    hidden = known.model_copy(update={"gradient_probe": probe.model_copy(update={"noise_scale": None})})
    assert GRADIENT_NOISE_SCALE.of_run(hidden) is None
