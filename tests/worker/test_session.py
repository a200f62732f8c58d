"""The work of the measured child, done in this process: how runs end, and what stands in their results."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.data import Prepared
from assay.optimizations import forget, search
from assay.parallel.loss_scale import DynamicLossScale
from assay.records.corpus import Remark
from assay.records.events import AGAIN, GO
from assay.records.status import Status
from assay.report import run as summary
from assay.store.run_folder import RunFolder
from assay.training.checkpoints import checkpoint
from assay.worker.processes.channel import ParentChannel
from support.runs import run_folder
from support.workers import ended, finished

pytestmark = pytest.mark.usefixtures("forked")


class Repeating(ParentChannel):
    """Grants every turn, and asks for two more blocks after the run."""

    repeats = 2

    def wait(self, upcoming: str) -> str:
        if upcoming != "repeat":
            return GO
        self.repeats -= 1
        return AGAIN if self.repeats >= 0 else GO


def test_a_repeated_block_changes_nothing_of_the_training(corpus: Prepared, tmp_path: Path) -> None:
    training = {"steps": 24, "eval_interval": 0}
    plain = ended(run_folder(tmp_path / "plain", corpus, training))
    folder = run_folder(tmp_path / "repeated", corpus, training)
    repeated = ended(folder, Repeating)
    assert [block.repeated for block in repeated.blocks] == [False] * 5 + [True] * 2
    assert {block.steps for block in repeated.blocks} == {3}
    assert (repeated.val_loss, repeated.train_loss) == (plain.val_loss, plain.train_loss)
    assert (repeated.steps, repeated.tokens) == (plain.steps, plain.tokens)
    assert repeated.step_seconds is not None
    assert repeated.step_seconds.count == 15
    assert sum(event.event == "step" for event in folder.events()) == 24
    assert repeated.memory.tensors_peak_bytes == plain.memory.tensors_peak_bytes
    weights = [
        checkpoint.read_state(tmp_path / name / "checkpoints" / "step-00000024") for name in ("plain", "repeated")
    ]
    assert weights[0]["position"]["tokens"] == weights[1]["position"]["tokens"]


def test_a_run_says_what_of_its_corpus_is_left_out(corpus: Prepared, tmp_path: Path) -> None:
    told = Remark(kind="left out", reason="not UTF-8", what="file", count=5, size_bytes=55, first="b.txt")
    manifest = corpus.folder / "manifest.json"
    source = corpus.manifest.source.model_copy(update={"remarks": (told,)})
    folder = tmp_path / "data"
    shutil.copytree(corpus.folder, folder)
    written = corpus.manifest.model_copy(update={"source": source}).model_dump_json()
    (folder / manifest.name).write_text(written)
    result = ended(run_folder(tmp_path / "run", replace(corpus, folder=folder), {"steps": 2}))
    assert ("note", str(told)) in list(summary.lines(result))


def test_a_run_says_once_what_of_streamed_files_is_left_out(corpus: Prepared, tmp_path: Path) -> None:
    books = tmp_path / "books"
    books.mkdir()
    (books / "a.jsonl").write_text('{"text": null}\n' + '{"text": "0123456789 0123456789"}\n' * 50)
    (books / "b.txt").write_bytes(b"\xff\x00")
    streaming = [{"name": "streaming", "fields": {"path": str(books)}}]
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": 8}, optimizations=streaming))
    said = [text for label, text in summary.lines(result) if label == "note"]
    assert [one.partition(";")[0] for one in said] == [
        "left out: 1 file of 2 B, with NUL bytes, so no text",
        "left out: 1 record, null and no text",
    ]


def test_a_run_counts_the_records_of_a_data_set_without_text(corpus: Prepared, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    books = tmp_path / "books"
    books.mkdir()
    (books / "a.jsonl").write_text('{"text": null}\n' * 2 + '{"text": "0123456789 0123456789"}\n' * 5)
    streaming = [{"name": "streaming", "fields": {"dataset": str(books)}}]
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": 8}, optimizations=streaming))
    (said,) = [text for label, text in summary.lines(result) if label == "note"]
    assert said == f"left out: 2 records, null and no text; the first is {books}, record 1"


def test_a_block_records_what_the_machine_did(corpus: Prepared, tmp_path: Path) -> None:
    block = ended(run_folder(tmp_path / "run", corpus, {"steps": 24})).blocks[0]
    if Path("/proc/stat").exists():
        assert block.others_seconds is not None
        assert block.others_seconds >= 0
        assert block.load is not None
    assert block.cores == os.cpu_count()


def test_a_budget_ends_a_run_that_can_go_on(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 40, "tokens": 640})
    result = ended(folder)
    assert (result.status, result.steps, result.tokens) == (Status.BUDGET_REACHED, 10, 640)
    assert result.reason == "the budget of 640 tokens is reached after 10 steps"
    assert result.val_loss is not None
    assert [block.steps for block in result.blocks] == [1] * 5
    assert (folder.checkpoints / "step-00000010").is_dir()
    again = ended(folder)
    assert (again.status, again.steps, again.tokens) == (Status.BUDGET_REACHED, 10, 640)


def test_a_budget_of_seconds_counts_over_processes(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 100_000, "seconds": 0.4})
    first = ended(folder)
    assert first.status is Status.BUDGET_REACHED
    assert 0 < first.steps < 100_000
    spent = seconds_at(folder, first.steps)
    budget = spent + 0.2
    spec = folder.spec()
    more = spec.config.training.model_copy(update={"seconds": budget})
    folder.prepare(spec.model_copy(update={"config": spec.config.model_copy(update={"training": more})}))
    second = ended(folder)
    assert second.status is Status.BUDGET_REACHED
    assert second.steps > first.steps
    # Had the first process's not counted, there would be a whole budget on top of them.
    assert budget <= seconds_at(folder, second.steps) < spent + budget


def seconds_at(folder: RunFolder, steps: int) -> float:
    return float(checkpoint.read_state(folder.checkpoints / f"step-{steps:08d}")["position"]["seconds"])


def test_a_target_that_is_reached_is_a_run_that_is_done(corpus: Prepared, tmp_path: Path) -> None:
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": 40, "eval_interval": 10, "target_loss": 100.0}))
    assert (result.status, result.steps) == (Status.DONE, 10)
    assert result.reason is not None
    assert result.reason.startswith("target loss reached")


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_run_of_few_steps_is_a_run(corpus: Prepared, tmp_path: Path, steps: int) -> None:
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": steps}))
    assert (result.status, result.steps) == (Status.DONE, steps)
    assert result.proof.trace is not None
    assert (result.step_seconds is None) is (steps < 3)
    assert (result.first_step_seconds is None) is (steps < 2)


def test_a_run_of_one_step_may_make_tables_in_it(corpus: Prepared, tmp_path: Path) -> None:
    rotations = {"position": "rotary", "rotary_base": 12345.0}  # of no other test, whose tables would be there
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": 1}, model=rotations))
    assert (result.status, result.reason) == (Status.DONE, None)


def test_a_mixtures_routers_are_put_on_record_at_each_evaluation(corpus: Prepared, tmp_path: Path) -> None:
    model = {"n_expert": 4, "expert_capacity": 0.5}
    folder = run_folder(tmp_path / "run", corpus, {"steps": 10, "eval_interval": 4}, model=model)
    result = ended(folder)
    told = [event for event in folder.events() if event.event == "router"]
    assert [event.step for event in told] == [4, 8, 10]
    for event, steps in zip(told, (4, 4, 2), strict=True):
        assert [sum(layer.tokens) for layer in event.layers] == [steps * 4 * 16 * 2] * 2
    assert [list(layer.tokens) for layer in result.loss.routers] == [list(one.tokens) for one in told[-1].layers]
    said = dict(summary.lines(result))["routers"]
    assert said.startswith(f"balance by layer {told[-1].layers[0].balance:.3f} ")
    assert said.endswith("% dropped")


def test_a_run_that_diverges_says_where(corpus: Prepared, tmp_path: Path) -> None:
    training = {"steps": 40, "learning_rate": 1e35, "warmup_steps": 0, "gradient_clip": 0.0}
    result = ended(run_folder(tmp_path / "run", corpus, training))
    assert result.status is Status.DIVERGED
    assert result.reason is not None
    assert result.reason.startswith(f"diverged at step {result.steps - 1}: ")
    assert result.reason.endswith("is the first tensor that is not finite")
    assert not list((tmp_path / "run").glob("checkpoints/*"))


DEAD = """
from assay.optimizations.bf16_mixed import Bf16Mixed

class Dead(Bf16Mixed):
    def apply(self, program, run):
        return program
"""


def test_an_optimization_without_effect_ends_the_run_at_once(corpus: Prepared, tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "dead.py").write_text(DEAD)
    added = search(tmp_path / "extra")
    try:
        result = ended(run_folder(tmp_path / "run", corpus, {"steps": 10}, optimizations="dead"))
    finally:
        forget(added)
    assert (result.status, result.status.exit_code) == (Status.NO_EFFECT, 3)
    assert result.reason is not None
    assert result.reason.startswith("dead took no effect: 0 of ")
    assert [one.verdict for one in result.evidence] == [False]
    assert (result.steps, result.blocks, result.step_seconds) == (2, (), None)


@pytest.fixture
def overflowing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss scale that costs the first updates of a run."""
    monkeypatch.setattr(DynamicLossScale.__init__, "__defaults__", (2.0**38, 0))


@pytest.mark.usefixtures("overflowing")
@pytest.mark.parametrize("optimization", ["fused_adamw", "muon", pytest.param("lion", marks=pytest.mark.slow)])
def test_an_optimizer_is_proven_in_the_first_step_that_is_watched_and_not_skipped(
    corpus: Prepared, tmp_path: Path, optimization: str
) -> None:
    training = {"steps": 60, "gradient_clip": 0.0}
    folder = run_folder(tmp_path / "run", corpus, training, optimizations=f"fp16_mixed+{optimization}")
    result = ended(folder)
    assert (result.status, [one.verdict for one in result.evidence]) == (Status.DONE, [True, True]), result.reason
    told = [event for event in folder.events() if event.event == "step"]
    watched = [event.skipped for event in told if event.phase == "trace"]
    assert len(watched) > 1
    assert watched == [True] * (len(watched) - 1) + [False]
    assert len(told) == result.steps == 60
    assert result.proof.trace.optimizer_state_bytes > 0
    assert result.step_seconds is not None


@pytest.mark.usefixtures("overflowing")
def test_where_every_update_is_skipped_nothing_is_proven_and_that_is_said(corpus: Prepared, tmp_path: Path) -> None:
    training = {"steps": 4, "measure_memory": True}
    folder = run_folder(tmp_path / "run", corpus, training, optimizations="fp16_mixed+fused_adamw")
    result = ended(folder)
    assert (result.status, result.steps, result.evidence) == (Status.FAILED, 4, ())
    assert result.status.resumable
    assert result.reason is not None
    assert result.reason.startswith("nothing could be proven: the update was skipped in each of 3 steps that")
    assert result.val_loss is not None
    spec = folder.spec()
    more = spec.config.training.model_copy(update={"steps": 60})
    folder.prepare(spec.model_copy(update={"config": spec.config.model_copy(update={"training": more})}))
    again = ended(folder)
    assert (again.status, [one.verdict for one in again.evidence]) == (Status.DONE, [True, True])
    # The memory pass had waited for an update: the optimizer had its state.
    assert result.memory.tensors_peak_bytes == again.memory.tensors_peak_bytes


@pytest.mark.parametrize(
    ("optimization", "observed"),
    [
        ("sdpa_attention", "2 of 2 calls of attention in a fused kernel, 0 softmaxes written out"),
        ("gradient_accumulation:micro_batches=2", "2 forward passes over 64 tokens before one update"),
    ],
)
def test_an_optimization_with_effect_is_proven(
    corpus: Prepared, tmp_path: Path, optimization: str, observed: str
) -> None:
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": 6}, optimizations=optimization))
    assert (result.status, [(one.observed, one.verdict) for one in result.evidence]) == (
        Status.DONE,
        [(observed, True)],
    )


def test_a_missing_corpus_fails_the_run_with_one_sentence(
    corpus: Prepared, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 3})
    folder.prepare(folder.spec().model_copy(update={"data_folder": str(tmp_path / "nowhere")}))
    result = ended(folder)
    assert result.status is Status.FAILED
    assert result.reason is not None
    assert str(tmp_path / "nowhere") in result.reason
    assert "Traceback" not in capfd.readouterr().err


def test_a_full_disk_ends_the_run_as_failed_and_earlier_checkpoints_stay(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = checkpoint.write_json

    def full_at_the_second(values: dict[str, Any], path: Path) -> None:
        if values["position"]["step"] > 4:
            raise OSError(28, "No space left on device")
        written(values, path)

    monkeypatch.setattr(checkpoint, "write_json", full_at_the_second)
    folder = run_folder(tmp_path / "run", corpus, {"steps": 10, "checkpoint_interval": 4})
    result = ended(folder)
    assert (result.status, result.steps) == (Status.FAILED, 8)
    assert result.reason is not None
    assert result.reason.startswith("the disk is full: step-00000008 could not be written")
    assert [place.name for place in checkpoint.complete(folder.checkpoints)] == ["step-00000004"]
    monkeypatch.undo()
    assert ended(folder).status is Status.DONE


def test_documents_that_break_off_leave_a_checkpoint_from_which_mended_ones_go_on(
    corpus: Prepared, tmp_path: Path
) -> None:
    lines = [json.dumps({"text": f"{n} bottles of milk " * 9}) for n in range(9)]
    place, run = tmp_path / "documents.jsonl", {"optimizations": f"streaming:path={tmp_path}/documents.jsonl"}
    place.write_text("\n".join(lines))
    whole = ended(run_folder(tmp_path / "whole", corpus, {"steps": 20}, **run))
    place.write_text("\n".join([*lines[:6], "{", *lines[7:]]))
    folder = run_folder(tmp_path / "run", corpus, {"steps": 20}, **run)
    for _ in range(2):
        result = ended(folder)
        assert (result.status, result.reason) == (
            Status.FAILED,
            f"{place}, line 7 is not JSON; each line must be one object with the field 'text'",
        )
        assert 10 < result.steps < 20
        assert [one.name for one in checkpoint.complete(folder.checkpoints)] == [f"step-{result.steps:08d}"]
    place.write_text("\n".join(lines))
    mended = ended(folder)
    assert (mended.status, mended.steps) == (Status.DONE, 20)
    assert (mended.train_loss, mended.val_loss) == (whole.train_loss, whole.val_loss)
    assert mended.documents == whole.documents == 1 + 20 * whole.config.tokens_per_step // len(lines[0][10:-2] + "\n")


def test_a_run_is_done_where_only_the_memory_pass_finds_no_more_documents(corpus: Prepared, tmp_path: Path) -> None:
    place = tmp_path / "documents.jsonl"
    place.write_text("\n".join([json.dumps({"text": "x" * (6 * 64 + 1)}), "{"]))
    training = {"steps": 6, "measure_memory": True}
    result = ended(run_folder(tmp_path / "run", corpus, training, optimizations=f"streaming:path={place}"))
    assert (result.status, result.steps, result.memory.tensors_peak_bytes) == (Status.DONE, 6, None)
    # A busy machine may leave a note on the time between steps as well.
    memory, proof = (note for note in result.notes if "passed between" not in note)
    assert memory.startswith("the memory pass had no step to measure, so its figures are missing: ")
    assert proof.startswith("the step at the end could not be traced: ")
    assert result.proven_until == "beginning"
    assert dict(summary.lines(result))["status"].endswith("NOT PROVEN: its end was not traced")


def test_a_damaged_checkpoint_is_noted_in_the_result(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 8, "checkpoint_interval": 4})
    ended(folder)
    (folder.checkpoints / "step-00000008" / "model.safetensors").write_bytes(b"")
    result = ended(folder)
    assert (result.status, result.steps) == (Status.DONE, 8)
    assert list(result.notes) == ["the checkpoint step-00000008 is damaged; continuing from the checkpoint before it"]
    assert [event.text for event in folder.events() if event.event == "note"] == list(result.notes)


def test_a_run_starts_from_anothers_weights(corpus: Prepared, tmp_path: Path) -> None:
    origin = run_folder(tmp_path / "origin", corpus, {"steps": 30, "learning_rate": 1e-2})
    before = ended(origin)
    place = origin.newest_checkpoint()
    heir = run_folder(tmp_path / "heir", corpus, {"steps": 1, "warmup_steps": 0}, model={"init_from": str(place)})
    after = ended(heir)
    assert before.val_loss is not None
    assert after.val_loss == pytest.approx(before.val_loss, abs=0.2)
    assert after.val_loss < 5.0


def test_an_evaluation_covers_the_whole_split_when_asked(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 3, "eval_batches": None})
    ended(folder)
    state = checkpoint.read_state(folder.checkpoints / "step-00000003")
    assert state["position"]["evaluation"]["targets"] == len(corpus.validation) - 1


def test_resuming_with_unlike_data_of_a_run_is_not_possible_through_the_model(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 3})
    ended(folder)
    spec = folder.spec()
    model = spec.config.model.model_copy(update={"n_layer": 3})
    wider = spec.config.model_copy(update={"model": model})
    folder.prepare(spec.model_copy(update={"config": wider}))
    result = ended(folder)
    assert result.status is Status.FAILED
    assert result.reason is not None
    assert "differ in the weight" in result.reason


def test_importing_the_session_leaves_out_what_one_device_has_no_need_of() -> None:
    """Torch's take a second or more to import; ours make each cell of a study longer that needs none of them.

    Torch's own optimizers import its compiler when they are made.
    """
    theirs = ("torch._dynamo", "torch.distributed.tensor", "torch.distributed.pipelining", "torch.distributed.fsdp")
    ours = (
        *("cost.step_cost", "instruments.collective_times", "model.hf", "model.own_model", "reference"),
        "values.check",
    )
    unwanted = (*theirs, *(f"assay.{name}" for name in ours), "assay.training.checkpoints.sharded_files", "memray")
    code = "import sys, assay.worker.main, assay.worker.session; "
    code += f"print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_router_is_watched_by_the_same_operators_before_and_after_an_evaluation(
    corpus: Prepared, tmp_path: Path
) -> None:
    model = {"n_expert": 3}
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": 8, "eval_interval": 1}, model=model))
    assert (result.status, result.reason) == (Status.DONE, None)
    assert result.loss.routers


@pytest.mark.parametrize("training", [{"target_loss": 100.0, "eval_interval": 1}, {"seconds": 1e-9}])
def test_a_run_that_ends_in_its_first_steps_is_checked_and_proven(
    corpus: Prepared, tmp_path: Path, training: dict[str, Any]
) -> None:
    result = ended(run_folder(tmp_path / "run", corpus, {"steps": 9, **training}, optimizations="sdpa_attention"))
    assert result.status in (Status.DONE, Status.BUDGET_REACHED)
    assert result.steps < 9
    assert [one.verdict for one in result.evidence] == [True]
    assert result.values is not None
    assert result.values.checked
    assert result.values.verdict


@pytest.mark.parametrize(
    ("arguments", "changes", "kept"),
    [
        ((), {}, 1),
        (("--turns", "0"), {}, 0),
        (("--turns", "0"), {"gradient_probe": 2}, 1),  # which reads it
        (("--turns", "0"), {"checkpoint_interval": 5}, 1),  # asked for
    ],
)
def test_a_short_cell_keeps_no_checkpoint(
    corpus: Prepared, tmp_path: Path, arguments: tuple[str, ...], changes: dict[str, int], kept: int
) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 3, **changes})
    _, result = finished(folder, *arguments)
    assert result.status is Status.DONE
    assert len(list(folder.checkpoints.glob("step-*"))) == kept


def test_a_long_cell_keeps_its_checkpoint(corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.worker.session._LONG_SECONDS", 0.0)
    folder = run_folder(tmp_path / "run", corpus, {"steps": 3})
    ended(folder, turns=1)
    assert len(list(folder.checkpoints.glob("step-*"))) == 1
