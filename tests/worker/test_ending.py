"""The end of a run's record: reasons for missing figures, a text of its model, and the agreement of gradients."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay import api
from assay.analysis.metrics.gradients import GRADIENT_COSINE, GRADIENT_NOISE_SCALE
from assay.config import Home, validate
from assay.config.run import OwnRows
from assay.optimizations import resolve_run
from assay.parallel.process_rank import ALONE, Ranks
from assay.records.prediction import Memory
from assay.records.timing import Block
from assay.store.run_folder import RunFolder
from assay.training.stops import Interrupted
from assay.worker.ending import LONGEST, MOST_PARAMETERS, add_gradient_probe, add_sample
from assay.worker.result import RunFindings, missing_figures
from support.comparisons import record
from support.trained import Trained, maker


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trained:
    home = Home(tmp_path / "home").ready()
    monkeypatch.setenv("ASSAY_HOME", str(home.root))
    return maker(home, tmp_path)


ONE_RANK = resolve_run(validate({}))
TWO_RANKS = resolve_run(validate({"ranks": 2, "optimizations": ["data_parallel"]}))
WHOLE = Block(
    steps=2, seconds=1.0, median_step_seconds=0.5, tokens=8, others_seconds=0.0, load=0.5, clock_hertz=1e9, cores=2
)
POOR = Block(steps=2, seconds=1.0, median_step_seconds=0.5, tokens=8)
MEASURED = Memory(process_peak_bytes=1, library_scratch_bytes=0, heap_peak_bytes=1)


def test_nothing_is_missing_where_all_is_told() -> None:
    assert not dict(missing_figures(MEASURED, [POOR, WHOLE], ONE_RANK))


def test_a_figure_that_is_not_told_has_a_reason() -> None:
    told = dict(missing_figures(Memory(library_scratch_bytes=0), [POOR], ONE_RANK))
    memory = {"memory.process_peak_bytes", "memory.heap_peak_bytes"}
    assert set(told) == {*memory, "blocks.others_seconds", "blocks.load", "blocks.clock_hertz"}
    assert all(told.values())


def test_a_peak_that_linux_tells_was_replayed_away() -> None:
    """Blocks of few steps, all of which the proof replays, leave no step in which the peak is read."""
    (replayed,) = dict(missing_figures(Memory(tensors_peak_bytes=1), [WHOLE], ONE_RANK)).values()
    (elsewhere, *_) = dict(missing_figures(Memory(tensors_peak_bytes=1), [POOR], ONE_RANK)).values()
    assert "replayed by the proof" in replayed
    assert "only Linux has" in elsewhere


def test_a_heap_that_was_left_out_says_so() -> None:
    memory = MEASURED.model_copy(update={"heap_peak_bytes": None})
    (absent,) = dict(missing_figures(memory, [WHOLE], ONE_RANK)).values()
    (left_out,) = dict(missing_figures(memory, [WHOLE], ONE_RANK, heap=False)).values()
    assert "memray is not installed" in absent
    assert "without times" in left_out


def test_a_figure_that_was_not_to_be_measured_is_not_missing() -> None:
    """Runs that end before their first block, GPUs, and ranks, over which the heap is not counted."""
    assert not dict(missing_figures(Memory(), [], ONE_RANK))
    assert not dict(missing_figures(Memory(process_peak_bytes=1, tensors_peak_bytes=1), [WHOLE], ONE_RANK))
    several = MEASURED.model_copy(update={"heap_peak_bytes": None})
    assert not dict(missing_figures(several, [WHOLE], TWO_RANKS))


def test_a_run_on_batches_of_ones_own_lacks_what_needs_text_or_validation() -> None:
    rows = OwnRows(targets=3, validation=True)
    with_validation = dict(missing_figures(MEASURED, [WHOLE], ONE_RANK.model_copy(update={"own_rows": rows})))
    assert set(with_validation) == {"val_perplexity", "val_bits_per_byte", "epoch_seconds", "sample"}
    blind = OwnRows(targets=3, validation=False)
    without = dict(missing_figures(MEASURED, [WHOLE], ONE_RANK.model_copy(update={"own_rows": blind})))
    assert set(without) - set(with_validation) == {
        "val_loss",
        "val_targets",
        "val_split_targets",
        "val_standard_error",
    }
    assert all(without.values())


def sampled(folder: RunFolder, **fields: object) -> RunFindings:
    """Findings of a run, with a text if it has one."""
    findings = RunFindings(folder.spec(), phases=None, **fields)
    add_sample(findings, folder)
    return findings


def test_it_is_written_by_the_newest_checkpoint(trained: Trained) -> None:
    found = sampled(trained(3)).sample
    assert found is not None
    assert len(found.text) == LONGEST
    assert sampled(trained(3)).sample == found
    assert sampled(trained(3, 4)).sample != found


def test_a_larger_model_writes_none(trained: Trained) -> None:
    findings = sampled(trained(3), parameters=MOST_PARAMETERS + 1)
    assert (findings.sample, findings.notes) == (None, [])


def test_a_text_that_cannot_be_had_is_a_note(trained: Trained) -> None:
    folder = trained(3)
    shutil.rmtree(folder.checkpoints)
    findings = sampled(folder)
    assert findings.sample is None
    assert findings.notes[0].startswith("no text was sampled: ")


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


def probed(folder: RunFolder, told: Told | None = None, ranks: Ranks = ALONE) -> RunFindings:
    """Findings of a run that asks for the comparison."""
    told = told or Told()
    spec = folder.spec()
    training = spec.config.training.model_copy(update={"gradient_probe": MICRO_BATCHES})
    run = spec.config.model_copy(update={"training": training})
    findings = RunFindings(spec.model_copy(update={"config": run}), phases=told)
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
