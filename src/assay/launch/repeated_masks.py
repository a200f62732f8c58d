"""Whether torch's dropout on this machine's GPU repeats masks, from a process of its own that may import torch."""

import subprocess
import sys

from assay.launch.lifeline import helper

_LOOK = (sys.executable, "-P", "-m", "assay.worker.programs.repeated_masks")
_LIMIT_SECONDS = 60


def largest_half_repeated() -> int | None:
    """Return how many elements the largest 16-bit mask has of which half comes again; None if that cannot be seen."""
    with helper(_LOOK) as process:
        try:
            out, _ = process.communicate(timeout=_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            return None
    return int(out.split()[-1]) if process.returncode == 0 else None
