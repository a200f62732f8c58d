"""Absent GPUs: their figures agree with each other and with the datasheets, and each has a source."""

import pytest

from assay.absent.gpus import ABSENT, absent_device, description
from assay.errors import UsageError
from assay.hardware.devices import CONTEXT_BYTES, DEVICES, LIMITS


@pytest.mark.parametrize("name", ABSENT)
def test_a_device_has_consistent_figures(name: str) -> None:
    device = ABSENT[name]
    assert device.source
    assert device.capability in LIMITS
    assert device.visible_bytes <= device.driver_bytes
    assert device.visible_bytes >= 0.97 * device.driver_bytes
    assert device.limits.shared_optin_bytes <= device.limits.shared_bytes
    assert CONTEXT_BYTES[0] < CONTEXT_BYTES[1] < device.visible_bytes


@pytest.mark.parametrize("name", ABSENT)
def test_an_absent_gpu_has_the_memory_of_its_datasheet(name: str) -> None:
    """One question has one place: what `assay capacity` calls full, a script on the absent GPU runs into."""
    assert ABSENT[name].visible_bytes == DEVICES[name].memory_bytes
    assert ABSENT[name].driver_bytes == DEVICES[name].driver_bytes


def test_a_name_is_found_in_any_case() -> None:
    assert absent_device("RTX4090") is ABSENT["rtx4090"]


def test_an_unknown_name_is_answered_with_a_near_one() -> None:
    with pytest.raises(UsageError, match="no absent GPU is called 'h10'; did you mean 'h100'"):
        absent_device("h10")


def test_the_library_learns_the_device_by_variables() -> None:
    variables = description(ABSENT["h100"], 2)
    assert variables["ASSAY_ABSENT_NAME"] == "NVIDIA H100 80GB HBM3"
    text = variables["ASSAY_ABSENT_DEVICE"]
    assert " count=2 major=9 minor=0 " in text
    assert f" memory_bytes={81089 * 2**20} " in text
