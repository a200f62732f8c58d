"""Cells take turns, so that every change of the machine's state affects all of them.

All cells of a wave are alive together, and one works at a time. First each cell is started and runs up to its warm-up.
Then each living cell runs one timed block in every round, in an order that is shuffled reproducibly for each round.
Then each cell finishes. If a cell dies, its end is recorded and the others continue.

A round is disturbed if other programs or a hypervisor took too much processor time in any of its blocks
(`Block.disturbed`). All cells repeat it once they have evaluated and saved. The repeated steps are discarded, so that
the training stays the same. There are at most as many repeated rounds as planned ones.
"""

import random
from collections.abc import Sequence
from contextlib import ExitStack, suppress
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
    Working,
)
from assay.records.events import AGAIN, GO
from assay.records.study import Cell, CellResult, Curve, Round, StudyEnding
from assay.records.timing import Block
from assay.store import history
from assay.store.event_log import Event


class Local(Executor):
    """Runs waves one after the other, in processes of this machine."""

    name: ClassVar[str] = "local"

    def run(self, waves: Sequence[tuple[int, Wave]], start: Start, blocks: int, tell: Listener) -> Conducted:
        """Run every wave. A Ctrl-C lets the living cells save and end, and a second one kills them."""
        done = Conducted()
        for number, wave in waves:
            with ExitStack() as stack:
                session = _Session(number, stack, tell, done)
                try:
                    session.run(wave, start, blocks)
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

    def run(self, cells: Sequence[Cell], start: Start, blocks: int) -> None:
        for cell in cells:
            self._tell(Turn(cell, "start"))
            child = self._stack.enter_context(start(cell))
            self._living[cell.name] = (cell, child)
            self._tell(Started(cell, child.folder.id, self._wave))
            self._work(cell)
        for number in range(1, blocks + 1):
            self._round(cells[0].seed, number)
        for cell, _ in list(self._living.values()):
            self._tell(Turn(cell, "finish"))
            self._work(cell)
        self._repeat(cells[0].seed, blocks)
        for cell, _ in list(self._living.values()):
            self._end(cell)

    def _repeat(self, seed: int, blocks: int) -> None:
        """Repeat disturbed rounds, while every living cell can run one more block."""
        for number in range(blocks + 1, 2 * blocks + 1):
            able = self._living and all(child.upcoming == "repeat" for _, child in self._living.values())
            if not able or self._clean >= blocks:
                return
            self._round(seed, number, AGAIN)

    def interrupt(self) -> None:
        """Let every living cell save and end; at a second Ctrl-C, kill them all."""
        self._tell = _without_a_terminal(self._tell)
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
        ran, disturbed = [], []
        for name in order:
            cell, _ = self._living[name]
            self._tell(Turn(cell, "block", number))
            ran.append(name)
            if self._work(cell, word):
                disturbed.append(name)
        self._clean += not disturbed
        ended = Round(seed=seed, wave=self._wave, number=number, order=tuple(ran), disturbed=tuple(disturbed))
        self._done.rounds.append(ended)
        self._tell(RoundEnded(ended))

    def _work(self, cell: Cell, word: str = GO) -> bool:
        """Let a cell do a piece of its work; True if a timed block in it was disturbed."""
        disturbed = False
        _, child = self._living[cell.name]
        for event in child.turn(word):
            if event["event"] == "phase":
                self._tell(Working(cell, str(event["name"])))
            elif event["event"] == "block":
                disturbed = Block.of(event).disturbed
        if child.finished:
            self._end(cell)
        return disturbed

    def _end(self, cell: Cell) -> None:
        _, child = self._living[cell.name]
        result = child.result()
        del self._living[cell.name]
        curve = curve_of(child.folder.events())
        self._done.cells.append(CellResult(cell=cell, wave=self._wave, result=result, curve=curve))
        self._tell(Ended(cell, result, self._wave))


def _without_a_terminal(tell: Listener) -> Listener:
    """Wrap the listener, because its terminal may have closed: a failure to print must not lose a result."""

    def told(news: News) -> None:
        with suppress(OSError):
            tell(news)

    return told


def curve_of(events: Sequence[Event]) -> Curve:
    """The losses up to the first step whose event is missing, so that a position in the curve is a step."""
    steps = history.steps(events)
    return Curve(
        train_loss=tuple(step.loss for at, step in enumerate(steps) if step.step == at),
        evaluations=tuple((seen.step, seen.loss) for seen in history.evaluations(events)),
    )
