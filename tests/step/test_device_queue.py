"""Copies to a step's device: the same values, and on a GPU none from pageable memory."""

import pytest
import torch

from assay.step.device_queue import copied_to

CPU = torch.device("cpu")


def test_a_tensor_that_is_there_already_is_itself() -> None:
    here = torch.arange(4)
    assert copied_to(CPU, here) is here


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_is_sent_the_values_without_a_wait() -> None:
    there = torch.device("cuda")
    rows = torch.arange(1000)
    torch.cuda.set_sync_debug_mode("error")
    try:
        sent = copied_to(there, rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert sent.cpu().equal(rows)
    assert copied_to(there, sent) is sent
