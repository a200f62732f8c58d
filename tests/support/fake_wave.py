"""The process of a wave whose cells are fake workers: ``fake_wave.py STUDY-FOLDER NUMBER [leashed]``.

The environment variable FAULT_WAVE, such as ``0 12``, kills the process of wave 0 at its change 12 of the disk. With
``0 12 orphaned`` the process that supervises it is killed instead.
"""

import os
import sys
from pathlib import Path

from assay.config import Home, Run
from assay.launch import spawn
from assay.launch.prepare import ReadyRun
from assay.optimizations import resolve_run
from assay.records.prediction import Predicted
from assay.studies.execution import ready, wave

FAKE_WORKER = Path(__file__).parent / "fake_worker.py"


def no_corpus(run: Run, home: Home, progress: object) -> ReadyRun:
    """Return a run that needs no corpus."""
    return ReadyRun(resolve_run(run), home.ready().data, "0" * 12, Predicted(tensors_peak_bytes=990))


if __name__ == "__main__":
    spawn.WORKER = (sys.executable, "-S", str(FAKE_WORKER))  # type: ignore[misc]
    ready.ready = no_corpus  # type: ignore[assignment]
    ready.measured_machine = lambda home, threads, tell: None  # type: ignore[assignment, misc]
    number, at, *fault = os.environ.get("FAULT_WAVE", "").split() or ("", "")
    if number == sys.argv[2]:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from support.faults import arm, killed, orphaned

        arm(Path(sys.argv[1]).parent.parent, int(at), orphaned if fault == ["orphaned"] else killed)
    wave.main(Path(sys.argv[1]), int(sys.argv[2]), "leashed" in sys.argv[3:])
