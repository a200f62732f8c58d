"""Descriptions of machines and their links, without torch."""

from assay.hardware.detect import detect
from assay.hardware.machine import ADA, AMPERE, Accelerator, Machine, Rates

__all__ = ["ADA", "AMPERE", "Accelerator", "Machine", "Rates", "detect"]
