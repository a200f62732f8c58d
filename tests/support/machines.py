"""Rates and a link as a machine might have them, round enough to compute with by hand."""

from assay.hardware import Rates
from assay.hardware.links import Link

MEASURED = Rates(
    device="cpu",
    matmul_flops={"float32": 1e11},
    bandwidth_bytes=1e10,
    launch_seconds=1e-6,
    backward_launch_seconds=2e-6,
    threads=2,
    torch="any",
)

LINK = Link(name="slow", latency_seconds=1e-4, bandwidth_bytes=1e8, source="any")
