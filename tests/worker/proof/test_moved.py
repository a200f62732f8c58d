"""What reads the bits of weights leaves their storage as it was: the memory pass counts what torch can resize."""

import torch

from assay.instruments.memory.memory_pass import live_tensor_bytes
from assay.values.tensors import _bits
from assay.worker.proof.moved import _digest


def test_reading_the_bits_of_a_weight_does_not_take_it_out_of_the_count() -> None:
    before = live_tensor_bytes(torch.device("cpu"))
    weight = torch.nn.Parameter(torch.ones(1000))
    assert _digest(weight) == _digest(weight)
    assert _bits(weight) == bytes.fromhex("0000803f") * 1000
    assert live_tensor_bytes(torch.device("cpu")) - before == 4000
