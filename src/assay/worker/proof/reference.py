"""The reference process: ``python -m assay.worker.proof.reference RUN_FOLDER`` checks the values that a run recorded.

It imports what it needs, and builds the reference programs while the run builds its own. Then it waits for a line on
its standard input: the name of a part of the run. It checks the record in `values/PART`, writes the proof beside it,
and answers with a byte on its standard output. It keeps the programs for the next part. It ends when its standard input
closes, because then its run has ended.
"""

import os
import sys
from typing import TYPE_CHECKING

from assay.worker.processes.channel import PARENT_GONE, take_standard_output, when_closed
from assay.worker.processes.ends import leave
from assay.worker.proof.process import ANSWER, NOT_SHARED

if TYPE_CHECKING:
    from pathlib import Path

    from assay.records.evidence import ValueProof
    from assay.store.run_folder import RunFolder
    from assay.values.check import Checker


def main(place: str) -> int:
    """Check the records of one run when asked; returns 0. Any error leaves its traceback in the log."""
    # Torch takes seconds to import, so the lifeline is watched first.
    when_closed(0, lambda: os._exit(PARENT_GONE))
    answers = take_standard_output()
    import torch._dynamo  # noqa: F401 (as the run does; else it would be imported after the word)

    from assay.instruments.memory.resident_memory import keep_freed_memory
    from assay.store.run_folder import RunFolder

    folder = RunFolder(place)
    checker = _checker(folder)
    checker.prepare()
    keep_freed_memory()  # steps that round then need not map freed memory anew
    while part := sys.stdin.buffer.readline().decode().strip():
        record = folder.path / "values" / part
        (record / ANSWER).write_text(_answer(checker, record).model_dump_json())
        os.write(answers, b".")
    return 0


def _answer(checker: "Checker", record: "Path") -> "ValueProof":
    from assay.records.evidence import ValueProof
    from assay.values.recorded import Recorded
    from assay.values.shared_memory import NotShared

    try:
        recorded = Recorded(record, checker.run.ranks, checker.device)
    except NotShared:
        return ValueProof(broken=NOT_SHARED)
    found = checker.check(recorded)
    recorded.close()
    return found


def _checker(folder: "RunFolder") -> "Checker":
    from assay.data import open_prepared
    from assay.values.check import Checker
    from assay.worker.build import device_of, settle_torch

    spec = folder.spec()
    device = device_of(spec.config)
    settle_torch(spec.config, device)
    return Checker(spec.config, open_prepared(folder.data_folder(spec)), device)


if __name__ == "__main__":
    leave(main(sys.argv[1]))  # the run waits for the end of this process
