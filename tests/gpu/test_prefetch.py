"""Copies from pinned memory beside a computing GPU: whole before they are used, and the same batches."""

import pytest
import torch

from assay.config import Spec
from assay.optimizations.pinned_prefetch.step import from_pinned_memory
from support.runs import run_with
from support.steps import build_step, losses

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")


@pytest.mark.device_values("losses are compared")
def test_losses_are_those_without_it_to_the_bit() -> None:
    plain, fetched = (
        run_with(*specs).model_copy(update={"device": "cuda"}) for specs in ((), (Spec(name="pinned_prefetch"),))
    )
    assert losses(fetched, 6) == losses(plain, 6)


def test_a_copy_is_begun_beside_what_computes_and_whole_when_it_is_used() -> None:
    rows = build_step(run_with()).program.batches(0, (0, 1))
    copy = from_pinned_memory(CUDA)
    busy = torch.randn(4096, 4096, device=CUDA)
    for _ in range(20):
        busy = busy @ busy / 64
        ready = copy(rows)
        ((ids, targets),) = ready()
        assert ids.device.type == "cuda"
        assert ids.cpu().equal(rows[0][0])
        assert targets.cpu().equal(rows[0][1])
