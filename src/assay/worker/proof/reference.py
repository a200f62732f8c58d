"""The reference process: ``python -m assay.worker.proof.reference RUN_FOLDER`` checks the values that a run recorded.

It imports what it needs, and waits for a word on its standard input. Then it reads `run.json` and the record in
`values/`, and writes `values/proof.json`. It ends when its standard input closes, because then its run has ended.
"""

import os
import sys

from assay.worker.processes.channel import PARENT_GONE, when_closed
from assay.worker.processes.exit import leave
from assay.worker.proof.process import CHECK


def main(place: str) -> int:
    """Check one run's record when asked; returns 0. Any error leaves its traceback in the log."""
    # Torch takes seconds to import, so the lifeline is watched first.
    when_closed(0, lambda: os._exit(PARENT_GONE))
    import torch._dynamo  # noqa: F401  # as the run does; else it would be imported after the word

    from assay.data import open_prepared
    from assay.store.run_folder import RunFolder
    from assay.values import check  # noqa: F401
    from assay.values.recorded import Recorded
    from assay.worker.build import device_of, settle_torch
    from assay.worker.proof.values import checked_in_memory

    if sys.stdin.buffer.readline() != CHECK:
        return 0
    folder = RunFolder(place)
    spec, values = folder.spec(), folder.path / "values"
    run = spec.config
    device = device_of(run)
    settle_torch(run, device)
    found = checked_in_memory(Recorded(values, run.ranks), run, open_prepared(folder.data_folder(spec)), device)
    (values / "proof.json").write_text(found.model_dump_json())
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1]))  # the run waits for the end of this process
