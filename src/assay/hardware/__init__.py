"""Descriptions of machines and their links, without torch."""

from assay.hardware.detect import ADA, AMPERE, HOPPER, Accelerator, Machine, Rates, detect

__all__ = ["ADA", "AMPERE", "HOPPER", "Accelerator", "Machine", "Rates", "detect"]
