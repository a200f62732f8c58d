"""Waves that are not timed run beside each other, as many at once as there are slots.

The cells of a wave follow one another: a trunk, and the cells that begin with its checkpoints.

Each has one thread, so that its losses do not depend on its neighbours. Its times would, so none is compared.
"""

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress

from assay.executors.base import Conducted, Ended, Interrupting, News, RunningCell, Started, Turn, Wave, Work
from assay.executors.ended import cell_result, without_a_terminal
from assay.executors.news import of_run
from assay.records.study import Cell, StudyEnding


def side_by_side(work: Work) -> Conducted:
    """Run the cells of every wave. A Ctrl-C lets the living cells save and end, and a second one kills them."""
    living = _Living(work)
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(max(1, work.slots)) as pool:
        try:
            for number, wave in work.waves:
                running.add(pool.submit(living.run_wave, wave, number))
                while len(running) >= max(1, work.slots):  # before the next wave is taken
                    running = _first_ended(running)
            while running:
                running = _first_ended(running)
        except KeyboardInterrupt:
            living.interrupt()
        except BaseException:
            living.kill()
            raise
    return living.done


def _first_ended(running: set[Future[None]]) -> set[Future[None]]:
    """Wait until a wave has ended, and return the others. An error of its thread is raised here."""
    ended, left = wait(running, return_when=FIRST_COMPLETED)
    for one in ended:
        one.result()
    return left


class _Living:
    """Cells that are running, each in a thread that reads its events, and the results of those that have ended."""

    def __init__(self, work: Work) -> None:
        self.done = Conducted()
        self._work = work
        self._tell = work.tell
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        """Held while a cell starts, which may take as long as an import of torch, so that `_lock` is not."""
        self._children: dict[str, RunningCell] = {}
        self._stopping = self._killing = False

    def run_wave(self, cells: Wave, number: int) -> None:
        """Run the cells of a wave one after the other."""
        for cell in cells:
            self.run(cell, number)

    def run(self, cell: Cell, wave: int) -> None:
        """Run one cell to its end."""
        with self._starting:
            with self._lock:
                if self._stopping:
                    return
                self._tell(Turn(cell, "start"))
            entered = self._work.start(cell)
            child = entered.__enter__()
        with self._lock:
            self._children[cell.name] = child
            late, killed = self._stopping, self._killing
        try:
            if killed:
                child.kill()
            elif late:
                child.interrupt()
            self._say(Started(cell, child.folder.id, wave))
            for event in child.events():
                if (news := of_run(event, cell)) is not None:
                    self._say(news)
            result = child.result()
            with self._lock:
                self.done.cells.append(cell_result(cell, wave, result, child.folder.events()))
                self._tell(Ended(cell, result, wave))
        finally:
            entered.__exit__(None, None, None)
            del self._children[cell.name]

    def interrupt(self) -> None:
        """Let every living cell save and end; at a second Ctrl-C, kill them all."""
        self.done.ending = StudyEnding.INTERRUPTED
        self._stopping = True
        try:
            with self._lock:
                self._tell = without_a_terminal(self._work.tell)
                self._tell(Interrupting())
                children = list(self._children.values())
            for child in children:
                child.interrupt()
            while self._children or self._starting.locked():
                threading.Event().wait(0.05)
        except KeyboardInterrupt:
            self.kill()

    def kill(self) -> None:
        """Kill every living cell, also one that is about to start."""
        self._stopping = self._killing = True
        with self._lock:
            children = list(self._children.values())
        for child in children:
            with suppress(OSError):
                child.kill()

    def _say(self, news: News) -> None:
        with self._lock:
            self._tell(news)
