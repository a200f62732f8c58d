"""What machine this is; no torch."""

from assay.hardware.detect import detect
from assay.hardware.machine import Accelerator, Machine, Rates

__all__ = ["Accelerator", "Machine", "Rates", "detect"]
