"""Memory of devices: the driver's figure, what torch sees of it, and a step less a context."""

import pytest

from assay.hardware.devices import DEVICES
from assay.hardware.memory import CONTEXT_BYTES, MEMORY, MIB

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
