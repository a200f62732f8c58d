"""A machine of which no rate is known: stacks are ranked by the arithmetic of a step, which is the same everywhere.

A budget of memory without a device names no machine. Seconds of the machine at hand would say nothing of the one that
is meant. So a second of these rates is a TFLOP of any dtype, and memory traffic and launches are free.
"""

from math import inf

from assay.cost.operation import DTYPE_BYTES
from assay.hardware import Machine, Rates

FLOPS = 1e12
"""FLOPs that count as a second."""


def counting(machine: Machine) -> Machine:
    """Return a machine with rates that count FLOPs, on its processor and on an accelerator."""
    rates = {
        kind: Rates(
            device=kind,
            matmul_flops=dict.fromkeys(DTYPE_BYTES, FLOPS),
            bandwidth_bytes=inf,
            launch_seconds=0.0,
            backward_launch_seconds=0.0,
            threads=1,
            torch="none",
        )
        for kind in ("cpu", "cuda")
    }
    return machine.model_copy(update={"rates": rates, "step_times": {}})
