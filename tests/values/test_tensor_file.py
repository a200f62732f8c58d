"""Tensors written to a record are read back bit for bit."""

from pathlib import Path

import pytest
import torch

from assay.values.tensor_file import Key, TensorReader, TensorWriter


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8]
)
def test_bits_come_back(dtype: torch.dtype, tmp_path: Path) -> None:
    tensors = [torch.arange(12).reshape(3, 4).to(dtype), torch.tensor(7).to(dtype), torch.zeros(0, 2, dtype=dtype)]
    writer = TensorWriter(tmp_path / "any.bin")
    for number, one in enumerate(tensors):
        writer.add(Key("weight", 0, str(number)), one)
    writer.close(rank=0)
    reader = TensorReader(tmp_path / "any.bin")
    assert reader.about == {"rank": 0}
    for number, one in enumerate(tensors):
        back = reader.get(Key("weight", 0, str(number)))
        assert back.dtype == dtype
        assert torch.equal(back, one)


def test_a_transposed_tensor_is_stored_as_it_reads(tmp_path: Path) -> None:
    writer = TensorWriter(tmp_path / "any.bin")
    writer.add(Key("weight", 0, "w"), torch.arange(6.0).reshape(2, 3).T)
    writer.close()
    assert TensorReader(tmp_path / "any.bin").get(Key("weight", 0, "w")).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_replica_has_a_digest_and_no_tensor(tmp_path: Path) -> None:
    writer = TensorWriter(tmp_path / "any.bin")
    writer.add(Key("weight", 0, "w"), torch.ones(2), stored=False)
    writer.add(Key("weight", 1, "w"), torch.ones(2))
    writer.close()
    reader = TensorReader(tmp_path / "any.bin")
    assert not reader.stored(Key("weight", 0, "w"))
    assert reader.digest(Key("weight", 0, "w")) == reader.digest(Key("weight", 1, "w"))


def test_tensors_begin_where_torchs_do_and_what_a_reader_changes_stays_with_it(tmp_path: Path) -> None:
    writer = TensorWriter(tmp_path / "any.bin")
    for number in range(3):
        writer.add(Key("noise", 0, str(number)), torch.tensor([1, 2, number], dtype=torch.uint8))
        writer.add(Key("weight", 0, str(number)), torch.ones(2))
    writer.close()
    reader = TensorReader(tmp_path / "any.bin")
    reader.get(Key("weight", 0, "0")).zero_()
    assert all(reader.get(Key("weight", 0, str(number))).data_ptr() % 64 == 0 for number in range(3))
    assert TensorReader(tmp_path / "any.bin").get(Key("weight", 0, "0")).tolist() == [1, 1]
