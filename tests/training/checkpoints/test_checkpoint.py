import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

from assay.config.mesh import Mesh
from assay.data import Prepared
from assay.errors import StorageError, UsageError
from assay.model.weights import read_weights
from assay.parallel.process_rank import ALONE, Ranks
from assay.step.program import Step
from assay.training.checkpoints import checkpoint
from assay.training.step_record import Position
from support.runs import tiny
from support.steps import Watcher, loop_of, step_of, weights

RUN = tiny({"steps": 8, "checkpoint_interval": 2}, dropout=0.1)


def trained(corpus: Prepared, folder: Path, steps: int) -> Step:
    step = step_of(RUN, corpus)
    loop_of(RUN, step, corpus, folder).advance(steps)
    return step


def optimizer_state(step: Step) -> dict[str, Tensor]:
    names = {parameter: name for name, parameter in step.named_parameters()}
    return {f"{names[p]}.{key}": value for p, state in step.optimizer.state.items() for key, value in state.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("stop", [2, 4, 6])
def test_a_resumed_run_continues_bit_for_bit(corpus: Prepared, tmp_path: Path, stop: int) -> None:
    whole_step = step_of(RUN, corpus)
    whole = loop_of(RUN, whole_step, corpus, tmp_path / "whole")
    whole.advance(8)
    trained(corpus, tmp_path / "cut", stop + 1)
    torch.manual_seed(12345)
    step = step_of(RUN, corpus)
    position, notes = checkpoint.resume(tmp_path / "cut", step)
    assert (position.step, position.tokens, notes) == (stop, stop * 64, [])
    loop = loop_of(RUN, step, corpus, tmp_path / "cut", position)
    loop.advance(8 - stop)
    assert isinstance(whole.observer, Watcher)
    assert isinstance(loop.observer, Watcher)
    expected = [(one.loss, one.log_gradient_norm) for one in whole.observer.records[stop:]]
    assert [(one.loss, one.log_gradient_norm) for one in loop.observer.records] == expected
    assert same(weights(step), weights(whole_step))
    assert same(optimizer_state(step), optimizer_state(whole_step))


def test_a_constant_rate_that_falls_later_is_the_run_that_fell_there_alone(corpus: Prepared, tmp_path: Path) -> None:
    falling = {"steps": 8, "warmup_steps": 2, "schedule": "wsd", "decay_fraction": 0.5}
    stable = tiny({**falling, "schedule": "constant", "keep_steps": [4]}, dropout=0.1)
    loop_of(stable, step_of(stable, corpus), corpus, tmp_path).advance(6)
    run = tiny(falling, dropout=0.1)
    alone, branch = step_of(run, corpus), step_of(run, corpus)
    torch.manual_seed(run.seed)
    loop_of(run, alone, corpus, tmp_path / "alone").advance(8)
    position, _ = checkpoint.resume(tmp_path, branch)
    assert position.step == 4
    loop_of(run, branch, corpus, tmp_path, position).advance(4)
    assert same(weights(branch), weights(alone))
    assert same(optimizer_state(branch), optimizer_state(alone))


def test_a_tied_weight_is_stored_once_and_the_model_can_be_read_alone(corpus: Prepared, tmp_path: Path) -> None:
    step = trained(corpus, tmp_path, 3)
    (place,) = checkpoint.complete(tmp_path)
    assert "head.projection.weight" not in read_weights(place, RUN.model)
    fresh = step_of(RUN, corpus)
    checkpoint.resume(tmp_path, fresh)
    (model,) = fresh.parts
    assert model.get_parameter("head.projection.weight") is model.get_parameter("embedding.token.weight")
    assert not same(weights(step), weights(fresh))


def test_loaded_state_lies_in_memory_of_torchs_own(corpus: Prepared, tmp_path: Path) -> None:
    trained(corpus, tmp_path, 3)
    step = step_of(RUN, corpus)
    checkpoint.resume(tmp_path, step)
    assert all(value.data_ptr() % 64 == 0 for value in optimizer_state(step).values())
    assert all(parameter.data_ptr() % 64 == 0 for _, parameter in step.named_parameters())


def test_the_last_two_are_kept_and_leftovers_are_removed(corpus: Prepared, tmp_path: Path) -> None:
    (tmp_path / ".making-step-00000004-abc").mkdir()
    trained(corpus, tmp_path, 7)
    assert [place.name for place in checkpoint.complete(tmp_path)] == ["step-00000006", "step-00000004"]
    checkpoint.resume(tmp_path, step_of(RUN, corpus))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000004", "step-00000006"]


def test_the_steps_to_keep_stay_beside_the_last_two(corpus: Prepared, tmp_path: Path) -> None:
    step = step_of(RUN, corpus)
    for done in range(1, 7):
        checkpoint.save(tmp_path, step, Position(step=done), "test", keep=(2, 3, 9))
    assert [int(place.name[-2:]) for place in checkpoint.complete(tmp_path)] == [6, 5, 3, 2]


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", [checkpoint.WEIGHTS, checkpoint.OPTIMIZER, checkpoint.STATE])
@pytest.mark.parametrize("damage", [cut_off, flip, Path.unlink])
def test_a_damaged_one_is_passed_over_and_said_to_be(
    corpus: Prepared, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    trained(corpus, tmp_path, 5)
    damage(tmp_path / "step-00000004" / name)
    step = step_of(RUN, corpus)
    position, notes = checkpoint.resume(tmp_path, step)
    assert position.step == 2
    assert notes == ["the checkpoint step-00000004 is damaged; continuing from the checkpoint before it"]
    assert [place.name for place in checkpoint.complete(tmp_path)] == ["step-00000002"]
    loop_of(RUN, step, corpus, tmp_path, position).advance(3)
    assert checkpoint.resume(tmp_path, step_of(RUN, corpus))[0].step == 4


def test_damage_everywhere_is_an_error_and_none_at_all_a_beginning(corpus: Prepared, tmp_path: Path) -> None:
    step = step_of(RUN, corpus)
    assert checkpoint.resume(tmp_path, step) == (Position(), [])
    trained(corpus, tmp_path, 3)
    flip(tmp_path / "step-00000002" / checkpoint.STATE)
    with pytest.raises(UsageError, match=r"every checkpoint in .* is damaged"):
        checkpoint.resume(tmp_path, step)


def test_a_full_disk_is_said_and_the_earlier_checkpoint_stays(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = trained(corpus, tmp_path, 3)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_json", full)
    with pytest.raises(StorageError, match="the disk is full: step-00000004 could not be written"):
        checkpoint.save(tmp_path, step, Position(step=4), "test")
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]
    assert checkpoint.resume(tmp_path, step_of(RUN, corpus))[0].step == 2


@dataclass(frozen=True)
class OneOfTwo(Ranks):
    """A rank whose other one agrees with it."""

    made: str = ""
    """The folder that the first one says it has made, where this is the other."""
    world = 2  # type: ignore[assignment]

    def gather(self, text: str) -> list[str]:
        return [text or self.made] * 2

    def meet(self) -> None:
        pass


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("number", [errno.EFBIG, errno.ENOSPC])
def test_a_write_that_the_disk_refuses_to_ranks_is_reported_by_each_as_by_one_device(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    step = step_of(RUN, corpus)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    def said(ranks: Ranks) -> str:
        with pytest.raises(StorageError) as raised:
            checkpoint.save(tmp_path, step, Position(step=4), "test", ranks)
        return str(raised.value)

    monkeypatch.setattr(HuggingFaceStorageWriter, "finish", full)
    monkeypatch.setattr(checkpoint, "write_safetensors", full)
    assert said(OneOfTwo(rank=0)) == said(OneOfTwo(rank=1, made=str(tmp_path))) == said(ALONE)


def test_another_model_is_refused(corpus: Prepared, tmp_path: Path) -> None:
    trained(corpus, tmp_path, 3)
    with pytest.raises(UsageError, match="differ in the weight"):
        checkpoint.resume(tmp_path, step_of(tiny(n_layer=3), corpus))


class Lone(Ranks):
    """A rank of a mesh that has no other process."""

    world = 1  # type: ignore[assignment]


def test_on_another_mesh_random_numbers_follow_from_seed_step_and_place(corpus: Prepared, tmp_path: Path) -> None:
    step, pair, line = step_of(RUN, corpus), Mesh(dp=2), Mesh(tp=2)
    checkpoint.save(tmp_path, step, Position(step=3), "test", Lone(layout=pair))
    following = torch.rand(4)

    def drawn(ranks: Ranks, seed: int = 0) -> tuple[Tensor, list[str]]:
        torch.manual_seed(99)
        _, notes = checkpoint.resume(tmp_path, step, ranks, seed)
        return torch.rand(4), notes

    same, silence = drawn(Lone(layout=pair))
    assert torch.equal(same, following)
    assert silence == []
    anew, notes = drawn(ALONE)
    assert notes == [
        "the checkpoint of step 3 was written on dp=2 and is read on one device: "
        "losses agree within rounding, and dropout draws other masks"
    ]
    assert torch.equal(anew, drawn(ALONE)[0])
    assert not torch.equal(anew, drawn(ALONE, seed=1)[0])
    assert not torch.equal(anew, drawn(Lone(rank=1, layout=Mesh(dp=4)))[0])
    # Both ranks hold the same residual stream, and must drop the same of it.
    assert torch.equal(drawn(Lone(rank=0, layout=line))[0], drawn(Lone(rank=1, layout=line))[0])


class Counter:
    """Something with a state of its own, plain and tensor."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"seen": 0, "scale": torch.ones(2)}

    def state_dict(self) -> dict[str, Any]:
        return self.values

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state


def test_tensors_that_a_program_holds_beside_weights_come_back(corpus: Prepared, tmp_path: Path) -> None:
    counter, other = Counter(), Counter()
    counter.values = {"seen": 7, "scale": torch.tensor([0.5, 2.0])}
    checkpoint.save(tmp_path, step_of(RUN, corpus, stateful={"counter": counter}), Position(step=1), "test")
    checkpoint.resume(tmp_path, step_of(RUN, corpus, stateful={"counter": other}))
    assert other.values["seen"] == 7
    assert torch.equal(other.values["scale"], torch.tensor([0.5, 2.0]))


def test_the_state_is_plain_json_and_names_its_run(corpus: Prepared, tmp_path: Path) -> None:
    trained(corpus, tmp_path, 3)
    state = json.loads((tmp_path / "step-00000002" / "state.json").read_text())
    assert (state["format"], state["identity"], state["position"]["step"]) == (3, "test", 2)
