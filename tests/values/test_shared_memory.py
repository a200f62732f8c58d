"""Another process opens what was put into a GPU's memory, and no figure of torch's contains it."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from assay.config import Spec
from assay.parallel.process_rank import ALONE
from assay.records.evidence import ValueProof
from assay.store.run_folder import RunFolder
from assay.training.loop import read, take_step
from assay.values.shared_memory import NotShared, OpenedMemory, SharedMemory
from assay.values.tensor_file import Key, TensorReader, TensorWriter, moved_to_files
from assay.worker.proof.process import NOT_SHARED, values_folder
from assay.worker.proof.values import ValueCheck
from support.runs import run_with
from support.steps import build_step

_READER = """
import sys, torch
from pathlib import Path
from assay.values.tensor_file import Key, TensorReader
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


def test_without_nvidias_driver_there_is_no_such_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.values.shared_memory._driver", _missing)
    assert SharedMemory(torch.device("cuda")).put(torch.ones(3)) is None


def _missing() -> None:
    raise OSError("libcuda.so.1: cannot open shared object file")


@pytest.mark.gpu
@pytest.mark.device_values  # an absent GPU opens any handle
def test_a_handle_of_nothing_is_refused() -> None:
    with pytest.raises(NotShared, match="the driver does not open the record"):
        OpenedMemory([("00" * 64, 512)], torch.device("cuda"))


@pytest.mark.gpu
def test_memory_that_cannot_be_opened_is_read_from_files(tmp_path: Path) -> None:
    memory = SharedMemory(torch.device("cuda"))
    _written(tmp_path / "any.bin", memory)
    moved_to_files(tmp_path / "any.bin", memory)
    memory.free()
    reader = TensorReader(tmp_path / "any.bin", torch.device("cuda"))
    assert reader.get(Key("weight", 0, "a")).shape == (3, 4)
    assert reader.get(Key("weight", 0, "b")).dtype == torch.bfloat16
    assert reader.get(Key("weight", 0, "c")).tolist() == [1.0, 1.0]
    reader.close()


def test_files_of_a_memory_are_read_without_a_gpu(tmp_path: Path) -> None:
    octets = torch.arange(6.0).view(torch.uint8).numpy()
    octets.tofile(tmp_path / "chunk0.bin")
    memory = OpenedMemory([(str(tmp_path / "chunk0.bin"), octets.size)], torch.device("cpu"))
    assert memory.get(0, 8, torch.float32, (2, 2)).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    memory.close()


@pytest.mark.gpu
def test_a_run_whose_memory_nobody_may_open_is_checked_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    class Process:
        """Cannot open a handle of the driver, and says so."""

        def ask(self, part: str) -> None:
            index = json.loads((values_folder(folder) / part / "rank0.json").read_text())
            asked.append(all("/" in text for text, _ in index["memory"]))

        def wait(self, seconds: float) -> bool:
            return True

        def answer(self, part: str) -> str:
            return ValueProof(broken="" if asked[-1] else NOT_SHARED, verdict=asked[-1], steps=1).model_dump_json()

    run = run_with(Spec(name="fused_adamw")).model_copy(update={"device": "cuda"})
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    step = build_step(run)
    loop = SimpleNamespace(run=run, step=step, ranks=ALONE, position=SimpleNamespace(step=0))
    check = ValueCheck(folder, loop, SimpleNamespace(interrupted=False), Process(), lambda proof: None)  # type: ignore[arg-type]
    for part in ("beginning", "middle"):
        with check.recorded(part, 0, 1):  # type: ignore[arg-type]
            read(step, [check.taking(take_step)(step, 0, None)])
            check.conclude()
    assert asked == [False, True, True]
