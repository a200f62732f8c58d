"""What reads the bits of weights leaves their storage as it was: the memory pass counts what torch can resize."""

import pytest
import torch

from assay.instruments.memory.memory_pass import live_tensor_bytes
from assay.values.tensor_file import _bits
from assay.worker.proof.moved import _digest, weighted_sum


def test_reading_the_bits_of_a_weight_does_not_take_it_out_of_the_count() -> None:
    before = live_tensor_bytes(torch.device("cpu"))
    weight = torch.nn.Parameter(torch.ones(1000))
    assert _digest(weight) == _digest(weight)
    assert _bits(weight) == bytes.fromhex("0000803f") * 1000
    assert live_tensor_bytes(torch.device("cpu")) - before == 4000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.uint8])
def test_any_change_of_one_element_changes_a_weighted_sum(dtype: torch.dtype) -> None:
    weight = torch.arange(5000).to(dtype)
    digest = weighted_sum(weight)
    for place in (0, 1, 2047, 4999):
        changed = weight.clone()
        octets = changed.view(torch.uint8)
        octets[place * dtype.itemsize] ^= 1  # one bit
        assert weighted_sum(changed) != digest
    assert weighted_sum(weight.clone()) == digest


def test_a_weighted_sum_knows_places_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.arange(1000.0)
    swapped = weight.clone()
    swapped[[3, 4]] = weight[[4, 3]]
    assert weighted_sum(swapped) != weighted_sum(weight)
    whole = weighted_sum(weight)
    monkeypatch.setattr("assay.worker.proof.moved._AT_ONCE", 7)
    assert weighted_sum(weight) == whole
    assert weighted_sum(torch.zeros(9)) == 0
