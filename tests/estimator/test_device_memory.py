"""Memory around tensors: working storage by device, intervals that add up, and budgets of unlike things."""

import pytest

from assay.cost.simulation.reserved import Interval
from assay.errors import UsageError
from assay.estimator import Estimate, estimate
from assay.estimator.device_memory import (
    CONTEXT,
    OBJECTS,
    STARTED,
    device_memory,
    device_memory_values,
    need_of,
    working_storage,
)
from assay.hardware import Machine
from assay.hardware.devices import DEVICES, absent_machine
from support.runs import run_with, specs_of

CPU = Machine(processor="any", cores=1, memory_bytes=2**34, instruction_set="avx512_core_bf16")
MIB = 2**20


def on(machine: Machine, device: str, *stack: str) -> Estimate:
    return estimate(run_with(*specs_of(stack)).model_copy(update={"device": device}), machine)


@pytest.mark.parametrize(
    ("capability", "interval"),
    [
        ((7, 0), Interval(2 * 8_519_680 + MIB, 2 * 8_519_680 + MIB)),
        ((8, 6), Interval(2 * 8_519_680 + MIB, 2 * 8_519_680 + MIB)),
        ((9, 0), Interval(65 * MIB, 65 * MIB)),
        (None, Interval(2 * 8_519_680 + MIB, 65 * MIB)),
    ],
)
def test_working_storage_follows_the_generation(capability: tuple[int, int] | None, interval: Interval) -> None:
    machine = absent_machine("a100")
    gpu = machine.accelerators[0].model_copy(update={"compute_capability": capability})
    assert working_storage(on(machine.model_copy(update={"accelerators": (gpu,)}), "cuda")) == interval


@pytest.mark.parametrize(
    ("device", "measured"), [("h200", 68_157_440), ("a100", 18_087_936), ("rtx4090", 18_087_936), ("t4", 18_087_936)]
)
def test_workspaces_are_those_that_were_measured(device: str, measured: int) -> None:
    """GPT-2 on an H200 (`h200_peaks.jsonl`), and its memory pass on absent GPUs of the other kinds."""
    assert working_storage(on(absent_machine(device), "cuda")) == Interval(measured, measured)


def test_a_cpu_has_scratch_and_no_device() -> None:
    found = on(CPU, "cpu", "bf16_mixed")
    assert working_storage(found) == Interval(0, found.library_scratch_bytes or 0)
    assert device_memory(found) is device_memory_values(found) is None


def test_the_total_is_what_is_reserved_and_the_context() -> None:
    found = device_memory(on(absent_machine("h100"), "cuda"))
    assert found is not None
    assert found.reserved is not None
    assert found.total == found.reserved.plus(CONTEXT)
    values = device_memory_values(on(absent_machine("h100"), "cuda"))
    assert values is not None
    assert values["total_bytes"] == {"low": found.total.low, "high": found.total.high}
    assert 0 < found.working.low < found.reserved.low <= found.reserved.high


def test_a_budget_counts_what_it_names() -> None:
    here, there = on(CPU, "cpu"), on(absent_machine("a100"), "cuda")
    assert need_of("tensors")(here) == here.most_bytes + OBJECTS
    assert need_of("process")(here) == need_of("tensors")(here) + STARTED.high
    memory = device_memory(there)
    assert memory is not None
    assert memory.total is not None
    assert need_of("tensors")(there) == there.most_bytes < need_of("device")(there) == memory.total.high


def test_scratch_of_a_library_is_no_more_than_its_bound() -> None:
    found = on(CPU, "cpu", "bf16_mixed")
    most = found.timeline.peak.nbytes + (found.library_scratch_bytes or 0)
    pages = 4096 + 136
    assert found.timeline.peak.nbytes < found.most_bytes <= most + pages * found.timeline.allocations


@pytest.mark.parametrize("name", [name for name, one in DEVICES.items() if not one.source.startswith("NVIDIA")])
def test_a_python_without_cuda_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="does not run CUDA"):
        absent_machine(name)
