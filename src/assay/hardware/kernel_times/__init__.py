"""Seconds of kernels: operators measured on one H200, and other GPUs in proportion to their datasheets."""

from assay.hardware.kernel_times.kernel import Kernel
from assay.hardware.kernel_times.seconds import (
    BACKWARD_LAUNCH_SECONDS,
    COMPILED,
    LAUNCH_SECONDS,
    MEASURED_ON,
    PRODUCT_LAUNCH_SECONDS,
    UPDATE_LAUNCH_SECONDS,
    Speeds,
    speeds_of,
)

__all__ = [
    "BACKWARD_LAUNCH_SECONDS",
    "COMPILED",
    "LAUNCH_SECONDS",
    "MEASURED_ON",
    "PRODUCT_LAUNCH_SECONDS",
    "UPDATE_LAUNCH_SECONDS",
    "Kernel",
    "Speeds",
    "speeds_of",
]
