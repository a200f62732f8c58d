"""The climb fills batches by the ledger, verifies them, and shows every rung; a small one runs from end to end."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.hardware import Accelerator, Machine, detect
from assay.optimizations import catalogue
from assay.records.status import Status

MACHINE = Machine(processor="any", cores=2, memory_bytes=2**33)
H100 = Accelerator(name="NVIDIA H100 80GB HBM3", memory_bytes=80 * 2**30, compute_capability=(9, 0))
WITHOUT = ["compile"]


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """One whose cells do not run: they hold what the ledger says, times a factor by batch."""
    import ladder_cells  # type: ignore[import-not-found]
    import ladder_gpt2_124m as ladder  # type: ignore[import-not-found]

    (tmp_path / "text.txt").write_text("to be or not to be\n" * 200)

    def make(
        held: Callable[[int], float] = lambda batch: 1.0, minutes: float = 1.0, gpus: tuple[Accelerator, ...] = ()
    ) -> Any:
        machine = MACHINE.model_copy(update={"accelerators": gpus})
        monkeypatch.setattr(ladder_cells, "measured_machine", lambda home, threads: machine)
        base = ladder.configuration([f"data.path={tmp_path / 'text.txt'}"], Home(tmp_path / "home"), on_gpu=False)
        lab = ladder_cells.Laboratory(base, Home(tmp_path / "home"), time.monotonic() + 60 * minutes)

        def measure(stack: tuple[str, ...], batch: int) -> Any:
            nbytes = round(held(batch) * lab.ledger(stack, batch))
            return ladder_cells.Outcome(stack, batch, Status.DONE, tokens=batch, allocated_bytes=nbytes)

        if minutes > 0:
            monkeypatch.setattr(lab, "measure", measure)
        return lab

    return make


def climbed(lab: Any, memory: int) -> tuple[list[Any], tuple[str, ...]]:
    from ladder_gpt2_124m import climb

    rows: list[Any] = []
    stack, _ = climb(lab, memory, WITHOUT, rows.append)
    return rows, stack


def test_the_largest_batch_is_the_last_that_fits(laboratory: Callable[..., Any]) -> None:
    from ladder_cells import SLACK

    lab = laboratory()
    memory = lab.ledger((), 10) / SLACK
    assert lab.largest((), int(memory) + 1) == 10
    assert lab.largest((), int(memory) - 1) == 9
    lab.granularity = 4
    assert lab.largest((), int(memory) + 1) == 8


def test_a_batch_is_filled_after_a_rung_that_frees_memory_and_only_then(laboratory: Callable[..., Any]) -> None:
    lab = laboratory()
    memory = int(1.2 * lab.ledger((), 8))
    rows, stack = climbed(lab, memory)
    filled = [row for row in rows if row.title.endswith(", batch filled")]
    assert filled
    assert "sdpa_attention:backend=flash" in stack
    for row in filled:
        before = rows[rows.index(row) - 1].outcome
        assert (before.stack, row.outcome.stack) == (row.outcome.stack,) * 2
        assert before.batch < row.outcome.batch
        assert lab.ledger(row.outcome.stack, row.outcome.batch) <= memory
        assert lab.ledger(row.outcome.stack, row.outcome.batch + 1) > memory


def test_a_batch_that_does_not_fit_after_all_is_made_smaller(laboratory: Callable[..., Any]) -> None:
    plain = laboratory()
    memory = int(1.2 * plain.ledger((), 8))
    most = max(row.outcome.batch for row in climbed(plain, memory)[0])
    lab = laboratory(lambda batch: 1.5 if batch == most else 1.0)
    rows, _ = climbed(lab, memory)
    over = [row for row in rows if not row.outcome.fits(memory) and row.outcome.done]
    assert over
    assert over[0].outcome.batch == most
    assert all(row.outcome.fits(memory) for row in rows[-1:] if row.outcome.done)


def test_a_batch_that_a_rung_leaves_no_room_for_is_cut(laboratory: Callable[..., Any]) -> None:
    from ladder_gpt2_124m import RUNGS

    plain = laboratory()
    memory = int(1.2 * plain.ledger((), 8))
    padded = next(rung.technique for rung in RUNGS if rung.technique.startswith("vocab_padding"))
    lab = laboratory()
    measure = lab.measure

    def short(stack: tuple[str, ...], batch: int) -> Any:
        outcome = measure(stack, batch)
        gone = stack[-1:] == (padded,) and batch > 4
        return replace(outcome, status=Status.OUT_OF_MEMORY, allocated_bytes=None) if gone else outcome

    lab.measure = short
    rows, stack = climbed(lab, memory)
    titles = [row.title for row in rows]
    cut = [row for row in rows if row.title == "vocabulary 50,304, batch cut"]
    batches = [rows[titles.index("vocabulary 50,304")].outcome.batch, *(row.outcome.batch for row in cut)]
    assert batches == sorted(batches, reverse=True)
    assert len(set(batches)) == len(batches) > 1
    assert (padded in stack) == cut[-1].outcome.done


def test_every_rung_is_shown_whether_it_can_be_had_or_not(laboratory: Callable[..., Any]) -> None:
    from ladder_gpt2_124m import FIRST, RUNGS

    lab = laboratory()
    rows, _ = climbed(lab, int(1.2 * lab.ledger((), 8)))
    plain = [row for row in rows if not row.title.endswith((", batch filled", ", batch cut"))]
    assert [row.title for row in plain] == [FIRST, *(rung.title for rung in RUNGS)]
    refused = {row.title: row.outcome.reason for row in plain if row.outcome.status == "unavailable"}
    assert "tensor cores" in refused["TF32"]
    assert "--without" in refused["compile"]


def test_credit_is_given_to_each_alone_and_left_out(laboratory: Callable[..., Any]) -> None:
    from ladder_gpt2_124m import RUNGS, credits

    stack = ("sdpa_attention:backend=flash", "weight_tying")
    found = list(credits(laboratory(), stack, 4, WITHOUT))
    out = [row.outcome.stack for table, row in found if table == "left out"]
    assert out == [stack, stack[1:], stack[:1]]
    alone = [row for table, row in found if table == "alone"]
    assert (alone[0].outcome.stack, len(alone)) == ((), len(RUNGS) + 1)
    assert {row.outcome.batch for _, row in found} == {4}


def test_a_gpu_takes_every_rung_and_each_credit(laboratory: Callable[..., Any]) -> None:
    from ladder_gpt2_124m import RUNGS, credits

    lab = laboratory(gpus=(H100,))
    rows, stack = climbed(lab, int(1.2 * lab.ledger((), 8)))
    here = {rung.title for rung in RUNGS if rung.technique.partition(":")[0] in {*catalogue()} - {*WITHOUT}}
    assert {row.title for row in rows if row.outcome.done} >= here
    assert "tf32" not in stack
    for _, row in credits(lab, stack, 4, WITHOUT):
        if row.outcome.done:
            lab.check(row.outcome.stack, 4)
        else:
            assert row.title.removesuffix(" alone") not in here, row.outcome.reason


def test_when_the_time_is_up_nothing_runs_and_the_row_says_so(laboratory: Callable[..., Any]) -> None:
    outcome = laboratory(minutes=0).measure((), 4)
    assert (outcome.status, outcome.reason, outcome.done) == ("not run", "no time was left", False)


SIZES = ["model.n_layer=1", "model.n_embd=16", "model.context_length=16", "training.steps=6"]


@pytest.mark.slow
def test_it_runs_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = whole([*SIZES, "device=cpu", "--without", "compile"], tmp_path, capsys)
    for one in filter(lambda one: one["status"] == "done", found):
        assert one["allocated_bytes"] == pytest.approx(one["predicted_bytes"], rel=0.05)


@pytest.mark.gpu
@pytest.mark.device_values
@pytest.mark.skipif(not detect().accelerators, reason="needs a CUDA device")
def test_it_runs_from_end_to_end_on_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [*SIZES, "model.n_head=1", "data.tokenizer=byte"]
    whole([*sizes, "--memory", "256MiB", "--without", "compile"], tmp_path, capsys)


def whole(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Every cell of a ladder that was climbed as a person would."""
    from ladder_gpt2_124m import RUNGS, main

    main([*words, "--out", str(folder / "ladder")])
    found = json.loads((folder / "ladder.json").read_text())
    assert (folder / "ladder.md").read_text() in capsys.readouterr().out
    assert found["climbed"][0]["outcome"]["status"] == "done"
    cells = [row["outcome"] for row in (*found["climbed"], *found["left_out"], *found["alone"])]
    for one in cells:
        assert one["reason"] if one["status"] != "done" else one["tokens_per_second"] > 0
    assert len(found["alone"]) == len(RUNGS) + 1
    return cells
