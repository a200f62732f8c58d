"""Descriptions of machines and their links, without torch."""

from assay.hardware.description import ADA, AMPERE, HOPPER, Accelerator, Machine, Rates
from assay.hardware.detect import detect

__all__ = ["ADA", "AMPERE", "HOPPER", "Accelerator", "Machine", "Rates", "detect"]
