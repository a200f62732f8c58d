"""A checkpoint that is not the live state, or a live state that is not the checkpoint's, ends as wrong values."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.config import Run
from assay.config.run import Spec
from assay.parallel.loss_scale import DynamicLossScale
from assay.step.program import Step
from assay.training.checkpoints import checkpoint, state
from assay.training.loop import train_step
from assay.training.step_record import Position
from assay.training.stops import WrongValues
from support.runs import run_with
from support.steps import build_step

ADAM, PADDED, SCALED = (run_with(Spec(name=name)) for name in ("adam", "vocab_padding", "fp16_mixed"))


def trained(run: Run) -> Step:
    step = build_step(run)
    for index in range(2):
        train_step(step, index)
    return step


def resumed(run: Run, folder: Path, change: Callable[[Any], None] = lambda optimizer: None) -> Step:
    """A new step that goes on from a checkpoint; `change` changes its optimizer once it is loaded."""
    step = build_step(run)
    honest = step.optimizer.load_state_dict

    def load_state_dict(given: dict[str, Any]) -> None:
        honest(given)
        change(step.optimizer)

    step.optimizer.load_state_dict = load_state_dict  # type: ignore[method-assign]
    checkpoint.resume(folder, step)
    return step


def zeroed(optimizer: Any) -> None:
    next(iter(optimizer.state.values()))["exp_avg"].zero_()


def one_bit(optimizer: Any) -> None:
    next(iter(optimizer.state.values()))["exp_avg_sq"].view(torch.int32).view(-1)[0] ^= 1


def exchanged(optimizer: Any) -> None:
    one, other = [entries for p, entries in optimizer.state.items() if p.shape == (32, 32)][:2]
    one["exp_avg"], other["exp_avg"] = other["exp_avg"], one["exp_avg"]


def lost(optimizer: Any) -> None:
    optimizer.state.clear()


def counted_anew(optimizer: Any) -> None:
    next(iter(optimizer.state.values()))["step"].fill_(1.0)


@pytest.mark.parametrize("change", [zeroed, one_bit, exchanged, lost, counted_anew])
def test_a_state_that_changes_while_it_is_loaded_is_an_error(change: Callable[[Any], None], tmp_path: Path) -> None:
    checkpoint.save(tmp_path, trained(ADAM), Position(step=2), "any")
    with pytest.raises(WrongValues, match="does not continue from the state of the checkpoint step-00000002"):
        resumed(ADAM, tmp_path, change)


def test_weights_that_are_rounded_while_they_are_loaded_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, trained(ADAM), Position(step=2), "any")
    read = checkpoint.read_safetensors
    monkeypatch.setattr(
        checkpoint, "read_safetensors", lambda path: {n: t.bfloat16().to(t.dtype) for n, t in read(path).items()}
    )
    with pytest.raises(WrongValues, match=re.escape("embedding.token.weight differs")):
        resumed(ADAM, tmp_path)


def test_noise_that_begins_anew_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, trained(ADAM), Position(step=2), "any")
    monkeypatch.setattr(state, "restore_generators", lambda states: None)
    torch.manual_seed(77)
    with pytest.raises(WrongValues, match="the random generator's state differs"):
        resumed(ADAM, tmp_path)


def test_a_scale_that_counts_anew_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = trained(SCALED)
    scale = step.program.precision.loss_scale
    assert isinstance(scale, DynamicLossScale)
    scale.stood = 2
    checkpoint.save(tmp_path, step, Position(step=2), "any")
    monkeypatch.setattr(DynamicLossScale, "load_state_dict", lambda self, given: setattr(self, "value", given["value"]))
    with pytest.raises(WrongValues, match="the state of loss_scale differs"):
        resumed(SCALED, tmp_path)


def test_moments_that_are_lost_where_there_is_padding_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, trained(PADDED), Position(step=2), "any")
    resumed(PADDED, tmp_path)
    honest = state._whole

    def emptied(tensor: Tensor, name: str, step: Step) -> Tensor:
        whole = honest(tensor, name, step)
        return whole.zero_() if whole.shape != tensor.shape else whole

    monkeypatch.setattr(state, "_whole", emptied)
    with pytest.raises(WrongValues, match="the optimizer's exp_avg"):
        resumed(PADDED, tmp_path)


def test_column_statistics_of_a_padded_weight_keep_their_shape(tmp_path: Path) -> None:
    run = run_with(Spec(name="vocab_padding"), Spec(name="adafactor"))
    checkpoint.save(tmp_path, trained(run), Position(step=2), "any")
    resumed(run, tmp_path)


def test_a_checkpoint_of_other_state_than_the_optimizer_uses_is_an_error(tmp_path: Path) -> None:
    step = trained(ADAM)
    honest = step.optimizer.state_dict

    def stale() -> dict[str, Any]:
        now = honest()
        return {**now, "state": {n: {**one, "exp_avg": one["exp_avg"] / 2} for n, one in now["state"].items()}}

    step.optimizer.state_dict = stale  # type: ignore[method-assign]
    with pytest.raises(
        WrongValues, match="the checkpoint step-00000002 does not hold the state of the run: the optimizer's"
    ):
        checkpoint.save(tmp_path, step, Position(step=2), "any")


def test_weights_that_are_not_numbers_are_equal_to_themselves(tmp_path: Path) -> None:
    step = trained(ADAM)
    with torch.no_grad():
        step.named_parameters()[0][1].fill_(torch.nan)
    checkpoint.save(tmp_path, step, Position(step=2), "any")
    resumed(ADAM, tmp_path)


def test_a_state_beside_the_optimizer_is_compared_as_it_is_written(tmp_path: Path) -> None:
    class Kept:
        def __init__(self) -> None:
            self.value: Any = (1, 2)

        def state_dict(self) -> dict[str, Any]:
            return {"value": self.value, "tensor": torch.ones(3)}

        def load_state_dict(self, given: dict[str, Any]) -> None:
            self.value = given["value"]

    step = trained(ADAM)
    step = replace(step, program=replace(step.program, stateful={"kept": Kept()}))
    checkpoint.save(tmp_path, step, Position(step=2), "any")
    checkpoint.resume(tmp_path, step)
