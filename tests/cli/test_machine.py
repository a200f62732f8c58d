"""`assay machine`: facts and rates; with --json one value."""

import sys

import pytest

from assay.hardware import Accelerator, Machine, Rates
from assay.launch import rates as source
from cli.conftest import Assay
from support.schemas import faults

RATES = Rates(
    device="cpu",
    matmul_flops={"float32": 1.5e11, "bfloat16": 2e9},
    bandwidth_bytes=2**33,
    launch_seconds=3e-6,
    backward_launch_seconds=7e-6,
    threads=2,
    torch="2.13.0",
)
MACHINE = Machine(
    processor="a processor",
    cores=2,
    memory_bytes=2**34,
    instructions=("avx2",),
    accelerators=(Accelerator(name="a GPU", memory_bytes=2**36),),
    rates={"cpu": RATES},
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    asked: list[bool] = []

    def measured(home: object, threads: int | None, *, fresh: bool, tell: object) -> Machine:
        asked.append(fresh)
        return MACHINE

    monkeypatch.setattr(source, "measured_machine", measured)
    return asked


def test_json_is_the_machine(assay: Assay, asked: list[bool]) -> None:
    value = assay("machine", "--json").value
    assert value["cores"] == 2
    assert value["native_dtypes"] == ["float32", "float64"]
    assert faults("machine", value) == []
    assert faults("machine", {**value, "native": []}) != []
    assert value["rates"]["cpu"]["matmul_flops"] == {"float32": 1.5e11, "bfloat16": 2e9}
    assert asked == [False]


def test_lines_name_what_is_native(assay: Assay, asked: list[bool]) -> None:
    said = assay("machine", "--fresh")
    assert said.code == 0
    assert asked == [True]
    lines = said.out.splitlines()
    assert "cpu\tfloat32\t150 GFLOP/s\tyes" in lines
    assert "cpu\tbfloat16\t2.00 GFLOP/s\tno, converted" in lines
    assert "accelerator\ta GPU, 64.0 GiB" in lines
    assert "copy on cpu\t8.00 GiB/s read and written" in lines


def test_a_killed_measurement_is_a_sentence_and_no_fault(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_MEASURE", (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"))
    said = assay("machine")
    assert said.code == 3
    assert said.sentence() == (
        "the process that measures cpu was killed by signal 9, perhaps by the system because memory ran out"
    )
