"""The process that looks whether dropout on this GPU repeats masks: ``python -m assay.worker.programs.repeated_masks``.

It prints the number of elements of the largest 16-bit mask of which half comes again in the next one, 0 if none does.
"""

import os

from assay.worker.processes.channel import PARENT_GONE, when_closed

NO_GPU = 2
"""Exit code where torch has no GPU."""


def main() -> int:
    """Print the answer."""
    import torch

    from assay.instruments.step_counters import largest_half_repeated

    if not torch.cuda.is_available():
        return NO_GPU
    print(largest_half_repeated(torch.device("cuda")))
    return 0


if __name__ == "__main__":
    when_closed(0, lambda: os._exit(PARENT_GONE))
    raise SystemExit(main())
