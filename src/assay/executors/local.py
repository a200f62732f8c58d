"""Waves on this machine: timed cells take turns, and others run beside each other.

Timed cells take turns, so that every change of the machine's state affects all of them. All cells of a wave are alive
together, and one works at a time. First each cell is started and runs up to its warm-up. Then each living cell runs one
timed block in every round, in an order that is shuffled reproducibly for each round. Then each cell finishes. If a cell
dies, its end is recorded and the others continue.

A round is disturbed if other programs, waiting cells or a hypervisor took too much processor time in any of its blocks
(`Block.disturbed`, `launch.neighbours`). All cells repeat it once they have evaluated and saved. The repeated steps are
discarded, so that the training stays the same. There are at most as many repeated rounds as planned ones.

Cells of a study that is not timed take no turns, and as many waves run at once as there are slots. The cells of a wave
follow one another: a trunk, and the cells that begin with its checkpoints.

Each has one thread, so that its losses do not depend on its neighbours. Its times would, so none is compared.
"""

import os
import random
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from itertools import islice
from typing import ClassVar

from assay.executors.base import (
    Conducted,
    Ended,
    Executor,
    Interrupting,
    Listener,
    News,
    RoundEnded,
    RunningCell,
    Start,
    Started,
    Turn,
    Wave,
    Work,
)
from assay.executors.ended import cell_result, without_a_terminal
from assay.executors.news import of_run
from assay.launch.neighbours import Neighbours, Trees
from assay.records.events import AGAIN, GO, BlockEvent
from assay.records.study import Cell, StudyEnding
from assay.records.timing import Round, disturbs


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


class Local(Executor):
    """Runs waves one after the other, in processes of this machine."""

    name: ClassVar[str] = "local"

    def run(self, work: Work) -> Conducted:
        """Run every wave. A Ctrl-C lets the living cells save and end, and a second one kills them."""
        if not work.blocks:
            return side_by_side(work)
        done = Conducted()
        for number, wave in work.waves:
            with ExitStack() as stack:
                session = _Session(number, stack, work.tell, done)
                try:
                    session.run(wave, work.start, work.blocks)
                except KeyboardInterrupt:
                    done.ending = StudyEnding.INTERRUPTED
                    session.interrupt()
                    return done
        return done


class _Session:
    """One wave: its living cells, and the results of those that have ended."""

    def __init__(self, wave: int, stack: ExitStack, tell: Listener, done: Conducted) -> None:
        self._wave = wave
        self._stack = stack
        self._tell = tell
        self._done = done
        self._living: dict[str, tuple[Cell, RunningCell]] = {}
        self._clean = 0
        """Number of undisturbed rounds."""
        self._trees = Trees()

    def run(self, cells: Sequence[Cell], start: Start, blocks: int) -> None:
        """Run the cells: their imports at once, one on each core, their first steps and timed blocks in turns."""
        later = iter(cells)
        self._begin(islice(later, os.cpu_count() or 1), start)
        for cell in cells:
            self._work(cell)
            self._begin(islice(later, 1), start)
        for number in range(1, blocks + 1):
            self._round(cells[0].seed, number)
        for cell, _ in list(self._living.values()):
            self._tell(Turn(cell, "finish"))
            self._work(cell)
        self._repeat(cells[0].seed, blocks)
        for cell, _ in list(self._living.values()):
            self._end(cell)

    def _begin(self, cells: Iterable[Cell], start: Start) -> None:
        for cell in cells:
            self._tell(Turn(cell, "start"))
            child = self._stack.enter_context(start(cell))
            self._living[cell.name] = (cell, child)
            self._tell(Started(cell, child.folder.id, self._wave))

    def _repeat(self, seed: int, blocks: int) -> None:
        """Repeat disturbed rounds, while every living cell can run one more block."""
        for number in range(blocks + 1, 2 * blocks + 1):
            able = self._living and all(child.upcoming == "repeat" for _, child in self._living.values())
            if not able or self._clean >= blocks:
                return
            self._round(seed, number, AGAIN)

    def interrupt(self) -> None:
        """Let every living cell save and end; at a second Ctrl-C, kill them all."""
        self._tell = without_a_terminal(self._tell)
        self._tell(Interrupting())
        try:
            for _, child in self._living.values():
                child.interrupt()
            for cell, _ in list(self._living.values()):
                self._end(cell)
        except KeyboardInterrupt:
            for _, child in self._living.values():
                child.kill()
            for cell, _ in list(self._living.values()):
                self._end(cell)

    def _round(self, seed: int, number: int, word: str = GO) -> None:
        order = list(self._living)
        random.Random(f"seed {seed}, wave {self._wave}, round {number}").shuffle(order)
        ran, disturbed, beside = [], [], Neighbours(self._trees)
        for name in order:
            cell, _ = self._living[name]
            self._tell(Turn(cell, "block", number))
            ran.append(name)
            if self._timed_turn(cell, word, beside):
                disturbed.append(name)
        self._clean += not disturbed
        ended = Round(
            seed=seed,
            wave=self._wave,
            number=number,
            order=tuple(ran),
            disturbed=tuple(disturbed),
            turn_seconds=beside.turn_seconds,
            outside_seconds=beside.outside_seconds,
        )
        self._done.rounds.append(ended)
        self._tell(RoundEnded(ended))

    def _timed_turn(self, cell: Cell, word: str, beside: Neighbours) -> bool:
        """Let a cell run a timed block; true if other programs or the processes of waiting cells disturbed it."""
        waiting = {name: child.pid for name, (_, child) in self._living.items() if name != cell.name}
        used = beside.used
        with beside.during(cell.name, waiting):
            disturbed = self._work(cell, word)
        return disturbed or disturbs(beside.used - used, beside.turn_seconds[cell.name], os.cpu_count() or 1)

    def _work(self, cell: Cell, word: str = GO) -> bool:
        """Let a cell do a piece of its work; True if a timed block in it was disturbed."""
        disturbed = False
        _, child = self._living[cell.name]
        for event in child.turn(word):
            if (news := of_run(event, cell)) is not None:
                self._tell(news)
            elif isinstance(event, BlockEvent):
                disturbed = event.block().disturbed
        if child.finished:
            self._end(cell)
        return disturbed

    def _end(self, cell: Cell) -> None:
        _, child = self._living[cell.name]
        result = child.result()
        del self._living[cell.name]
        self._done.cells.append(cell_result(cell, self._wave, result, child.folder.events()))
        self._tell(Ended(cell, result, self._wave))
