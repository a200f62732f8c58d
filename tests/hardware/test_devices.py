"""Devices: memory by the driver and by torch, a step less a context, and peaks by the name that a driver gives."""

import pytest

from assay.hardware.detect import Accelerator, Machine, Rates
from assay.hardware.devices import CONTEXT_BYTES, DEVICES, MEMORY, MIB, datasheet, peak_flops

TORCH_SAW = {"rtx4090": 23.64, "rtx3090": 23.70, "t4": 14.56, "l4": 22.03, "v100": 31.74, "l40s": 44.39, "b200": 178.35}
"""GiB that torch printed in an error of a user's, by device."""


@pytest.mark.parametrize("key", DEVICES)
def test_a_device_has_what_its_driver_gives_less_a_small_share(key: str) -> None:
    device, memory = DEVICES[key], MEMORY[key]
    assert (device.driver_bytes, device.memory_bytes) == (memory.driver * MIB, memory.visible * MIB)
    assert 0.97 * device.driver_bytes < device.memory_bytes <= device.driver_bytes
    assert device.memory_source == memory.source != ""
    assert CONTEXT_BYTES[0] < CONTEXT_BYTES[1] < 0.06 * device.memory_bytes


@pytest.mark.parametrize(("key", "gibibytes"), TORCH_SAW.items())
def test_torch_sees_what_users_errors_say(key: str, gibibytes: float) -> None:
    assert DEVICES[key].memory_bytes / 2**30 == pytest.approx(gibibytes, abs=0.01)


def test_the_driver_s_figures_are_those_of_nvidia_smi() -> None:
    figures = {key: DEVICES[key].driver_bytes // MIB for key in ("rtx4090", "h100", "a100-40gb", "h200")}
    assert figures == {"rtx4090": 24564, "h100": 81559, "a100-40gb": 40960, "h200": 143771}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
    ],
)
def test_a_drivers_name_finds_its_datasheet(name: str, key: str) -> None:
    assert datasheet(name) is DEVICES[key]


def test_a_datasheets_own_name_finds_it() -> None:
    gpus = [one for one in DEVICES.values() if not one.name.startswith("TPU")]
    assert [datasheet(one.name) for one in gpus] == gpus


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "Other",
        "",
    ],
)
def test_another_form_of_a_device_has_no_known_peak(name: str) -> None:
    assert datasheet(name) is None


def test_a_gpu_has_the_peak_of_the_dtypes_in_which_a_step_multiplies() -> None:
    gpu = Accelerator(name="NVIDIA A100-SXM4-80GB", memory_bytes=80 * 10**9)
    machine = Machine(processor="some", cores=2, memory_bytes=1, accelerators=(gpu,))
    assert peak_flops(machine, "cuda", {"bfloat16": 10**12}) == 312e12
    assert peak_flops(machine, "cuda", {"tf32": 10**12}) == 156e12
    assert peak_flops(machine, "cuda", {"float32": 10**12}) == 19.5e12
    mixed = peak_flops(machine, "cuda", {"float32": 195 * 10**11, "bfloat16": 312 * 10**12})
    assert mixed == pytest.approx((19.5e12 + 312e12) / 2)  # a second for each
    assert peak_flops(machine, "cuda", {"bfloat16": 1, "float64": 1}) is None
    assert peak_flops(machine, "cuda", {}) is None
    assert peak_flops(machine, "cpu", {"float32": 1}) is None


def test_a_cpu_has_its_undoubted_rates() -> None:
    rates = Rates(
        device="cpu",
        matmul_flops={"float32": 1e11, "bfloat16": 3e11, "float16": 9e11},
        bandwidth_bytes=1e10,
        launch_seconds=1e-6,
        backward_launch_seconds=1e-6,
        threads=2,
        torch="2",
        doubtful=("float16",),
    )
    machine = Machine(processor="some", cores=2, memory_bytes=1, rates={"cpu": rates})
    assert peak_flops(machine, "cpu", {"bfloat16": 5}) == 3e11
    assert peak_flops(machine, "cpu", {"float32": 5}) == 1e11
    assert peak_flops(machine, "cpu", {"float16": 5}) is None
