"""The process of one wave: ``python -m assay.studies.execution.wave STUDY-FOLDER NUMBER [leashed]``.

An executor starts it where the wave is to run (`executors.elsewhere`). It checks and prepares the cells on its own
machine, lets them take turns, and writes their news to the wave's log. It ends when the stop file appears, at a signal,
and, if leashed, when its standard input closes. Living cells save first.
"""

import os
import signal
import sys
import threading
import time
from _thread import interrupt_main
from pathlib import Path

from assay.config.home import Home
from assay.data.progress import silent
from assay.errors import StorageError, UsageError
from assay.executors.base import News, Work
from assay.executors.elsewhere import LEASHED, OVER, POLL_SECONDS, WaveFiles
from assay.executors.local import Local
from assay.executors.news import to_event
from assay.hardware import detect
from assay.platforms import STOPPING
from assay.records.study import StudyEnding
from assay.store.event_log import append
from assay.store.processes import try_lock
from assay.studies.drift import NUDGED
from assay.studies.execution.ready import ready_cells, side_by_side, starter
from assay.studies.folder import StudyFolder


def main(folder: Path, number: int, leashed: bool) -> None:
    """Run one wave of a study, and write its news. It does nothing if another process runs the wave."""
    files = WaveFiles(folder, number)
    for one in STOPPING:
        signal.signal(one, signal.default_int_handler)
    with files.log.open("ab") as log:
        if not try_lock(log):
            return
        try:
            threading.Thread(target=_stop_with, args=(files.stop,), daemon=True).start()
            if leashed:
                threading.Thread(target=_end_with_input, daemon=True).start()
            ending = _run(files)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a request to stop that comes too late
            append(files.log, {"event": OVER, "ending": ending})
        except (UsageError, StorageError) as error:
            append(files.log, {"event": OVER, "refused": str(error)})
        except KeyboardInterrupt:  # before the first cell, or after the last
            append(files.log, {"event": OVER, "ending": StudyEnding.INTERRUPTED.value})


def _run(files: WaveFiles) -> str:
    """Run the wave, and return how it ended."""
    study, home = StudyFolder(files.folder), Home(files.folder.parent.parent)
    plan = study.plan()
    if plan is None:
        raise UsageError(f"{files.folder} has no plan of a study")
    names = files.cells.read_text().splitlines()
    wave = tuple(cell for cell in plan.cells if cell.name in names)
    real = [cell for cell in wave if cell.treatment != NUDGED]
    prepared = ready_cells(real or plan.cells[:1], detect(), home, silent, timed=plan.protocol.blocks > 0)[1]

    def tell(news: News) -> None:
        event = to_event(news)
        if event is not None:
            append(files.log, event)

    begin, slots = starter(plan, prepared, home), side_by_side(prepared.values())
    waves = [(files.number, wave)]
    return Local().run(Work(waves, begin, plan.protocol.blocks, tell, home, files.folder, slots)).ending.value


def _stop_with(file: Path) -> None:
    while not file.exists():
        time.sleep(POLL_SECONDS)
    interrupt_main()


def _end_with_input() -> None:
    while os.read(0, 1):  # without the buffer, whose lock would break the interpreter's shutdown
        pass
    interrupt_main()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), LEASHED in sys.argv[3:])
