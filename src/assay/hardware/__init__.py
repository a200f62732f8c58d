"""Descriptions of machines and their links, without torch."""

from assay.hardware.description import ADA, AMPERE, Accelerator, Machine, Rates
from assay.hardware.detect import detect

__all__ = ["ADA", "AMPERE", "Accelerator", "Machine", "Rates", "detect"]
