"""The comparison of micro-batches' gradients that a run records at its end."""

import shutil

from assay import api
from assay.analysis.metrics.gradients import GRADIENT_COSINE, GRADIENT_NOISE_SCALE
from assay.store.run_folder import RunFolder
from assay.worker.ending.gradients import add_gradient_probe
from assay.worker.result import Findings
from support.comparisons import record
from support.trained import Trained

MICRO_BATCHES = 6


def probed(folder: RunFolder, ranks: int = 1) -> tuple[Findings, list[tuple[int, int]]]:
    """Findings of a run that asks for the comparison, and what was told meanwhile."""
    spec = folder.spec()
    training = spec.config.training.model_copy(update={"gradient_probe": MICRO_BATCHES})
    run = spec.config.model_copy(update={"training": training, "ranks": ranks})
    findings = Findings(spec.model_copy(update={"config": run}), phases=None)
    told: list[tuple[int, int]] = []
    add_gradient_probe(findings, folder, lambda *done: told.append(done))
    return findings, told


def test_it_is_that_of_the_command_at_the_newest_checkpoint(trained: Trained) -> None:
    folder = trained(3)
    findings, told = probed(folder)
    assert findings.gradient_probe == api.gradients(folder.id, micro_batches=MICRO_BATCHES)
    assert findings.gradient_probe.steps == 3
    assert told == [(done, MICRO_BATCHES) for done in range(1, MICRO_BATCHES + 1)]
    assert findings.notes == []


def test_several_ranks_and_a_lost_checkpoint_are_notes(trained: Trained) -> None:
    folder = trained(3)
    assert "this needs a run on one rank" in probed(folder, ranks=2)[0].notes[0]
    shutil.rmtree(folder.checkpoints)
    findings, _ = probed(folder)
    assert findings.gradient_probe is None
    assert findings.notes[0].startswith("gradients of micro-batches were not compared: ")


def test_metrics_are_those_of_the_record(trained: Trained) -> None:
    result = next(one.result for one in record().cells if one.result is not None)
    assert (GRADIENT_COSINE.of_run(result), GRADIENT_NOISE_SCALE.of_run(result)) == (None, None)
    probe = probed(trained(3))[0].gradient_probe
    assert probe is not None
    known = result.model_copy(update={"gradient_probe": probe})
    scale = None if probe.noise_scale is None else probe.noise_scale.sequences
    assert (GRADIENT_COSINE.of_run(known), GRADIENT_NOISE_SCALE.of_run(known)) == (probe.mean_cosine, scale)
    hidden = known.model_copy(update={"gradient_probe": probe.model_copy(update={"noise_scale": None})})
    assert GRADIENT_NOISE_SCALE.of_run(hidden) is None
