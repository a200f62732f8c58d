"""Another process opens what was put into a GPU's memory, and no figure of torch's contains it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assay.values.shared_memory import OpenedMemory, SharedMemory
from assay.values.tensors import Key, TensorReader, TensorWriter

_READER = """
import sys, torch
from pathlib import Path
from assay.values.tensors import Key, TensorReader
reader = TensorReader(Path(sys.argv[1]), torch.device("cuda"))
for name in ("a", "b", "c"):
    one = reader.get(Key("weight", 0, name))
    print(one.device.type, one.dtype, list(one.shape), float(one.double().sum()))
reader.close()
"""


def _written(path: Path, memory: SharedMemory) -> None:
    writer = TensorWriter(path, memory, digests=False)
    writer.add(Key("weight", 0, "a"), torch.arange(12.0, device="cuda").reshape(3, 4))
    writer.add(Key("weight", 0, "b"), torch.full((3,), 2.0, dtype=torch.bfloat16, device="cuda"))
    writer.add(Key("weight", 0, "c"), torch.ones(2))
    writer.close()


@pytest.mark.gpu
@pytest.mark.device_values
def test_another_process_reads_what_was_put_there(tmp_path: Path) -> None:
    memory = SharedMemory(torch.device("cuda"))
    _written(tmp_path / "any.bin", memory)
    read = [sys.executable, "-c", _READER, str(tmp_path / "any.bin")]
    lines = subprocess.run(read, capture_output=True, text=True, check=True).stdout.splitlines()
    memory.free()
    assert lines == [
        "cuda torch.float32 [3, 4] 66.0",
        "cuda torch.bfloat16 [3] 6.0",
        "cpu torch.float32 [2] 2.0",
    ]


@pytest.mark.gpu
def test_the_memory_is_none_of_torchs_and_goes_back(tmp_path: Path) -> None:
    device = torch.device("cuda")
    torch.zeros(1, device=device)
    free, reserved = torch.cuda.mem_get_info(device)[0], torch.cuda.memory_reserved(device)
    memory = SharedMemory(device)
    _written(tmp_path / "any.bin", memory)
    assert free - torch.cuda.mem_get_info(device)[0] >= 256 * 2**20
    assert torch.cuda.memory_reserved(device) == reserved
    index = json.loads((tmp_path / "any.json").read_text())
    assert [one.get("memory") for one in index["tensors"]] == [[0, 0], [0, 512], None]
    memory.free()
    assert torch.cuda.mem_get_info(device)[0] == free


@pytest.mark.gpu
def test_a_device_without_room_leaves_tensors_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SharedMemory(torch.device("cuda"))
    monkeypatch.setattr(memory, "_grow", lambda size: False)
    _written(tmp_path / "any.bin", memory)
    reader = TensorReader(tmp_path / "any.bin", torch.device("cuda"))
    assert reader.get(Key("weight", 0, "a")).shape == (3, 4)
    assert reader.get(Key("weight", 0, "a")).device.type == "cpu"


@pytest.mark.gpu
@pytest.mark.device_values  # an absent GPU opens any handle
def test_a_handle_of_nothing_is_refused() -> None:
    with pytest.raises(OSError, match="the driver does not open the record"):
        OpenedMemory([("00" * 64, 512)], torch.device("cuda"))
