"""Layouts: a batch divides among ranks and micro-batches, schedules exist, and what does not divide is a sentence."""

from typing import Any

import pytest

from assay.config.mesh import Mesh
from assay.cost.mesh_layout import Layout
from assay.errors import UsageError
from support.published import gpt

GPT3 = gpt(96, 12288, 96)


def test_cutting_makes_more_and_smaller_micro_batches() -> None:
    whole = Layout(Mesh(dp=4, pp=2), batch=64, micro_batch=16)
    assert whole.micro_batches == 1
    cut = whole.cut(8)
    assert (cut.micro_batch, cut.micro_batches) == (2, 8)
    with pytest.raises(UsageError, match="a multiple of dp × micro-batches = 12"):
        whole.cut(3)


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("gpipe", 1), ("one_f_one_b", 1), ("interleaved", 2), ("zero_bubble_v", 2)]
)
def test_every_schedule_does_every_micro_batch_once(schedule: Any, chunks: int) -> None:
    order = Layout(Mesh(pp=4), 8, schedule=schedule, chunks=chunks).order()
    assert order.chunks == chunks
    for actions in order.orders:
        assert sum(action.kind == "F" for action in actions) == 8 * chunks
        assert len(actions) == len(set(actions))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mesh": Mesh(pp=7)}, "n_layer=96 is not divisible by 7"),
        ({"mesh": Mesh(tp=64)}, "n_head=96 is not divisible by 64"),
        ({"mesh": Mesh(cp=3)}, "context_length=2048 is not divisible by 3"),
    ],
)
def test_a_model_that_does_not_divide(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Layout(**{"batch": 64, **changes}).check(GPT3)


def test_a_batch_that_does_not_divide() -> None:
    with pytest.raises(UsageError, match="make it a multiple of 6"):
        _ = Layout(Mesh(dp=3), batch=8, micro_batch=2).micro_batches
    with pytest.raises(UsageError, match="a multiple of 4 micro-batches, not 6"):
        Layout(Mesh(pp=4), batch=6, schedule="interleaved", chunks=2).order()
    with pytest.raises(UsageError, match="choose 'interleaved' for more"):
        Layout(Mesh(pp=4), batch=8, chunks=2).order()
    with pytest.raises(UsageError, match="set chunks=2"):
        Layout(Mesh(pp=4), batch=8, schedule="zero_bubble_v").order()
