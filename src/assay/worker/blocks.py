"""Timed blocks of the measured child: consecutive steps; other cells of a comparison run between two blocks.

The first step of a block finds memory and caches as the other cells left them. So it is not timed, and memory is
measured over it. In a block of one step, that step is both timed and measured. The other activity of the machine is
read before and after the timed steps, outside their time. The clock of the phase runs on between two steps, so work
that a program does there is known as well (`Block.between_seconds`).

A disturbed block is repeated after the run has been evaluated and saved. Its steps are discarded, so repeating changes
nothing in the training.
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict

from assay.instruments.memory.process import trim
from assay.instruments.rates import surroundings
from assay.parallel.ranks import Ranks
from assay.records.timing import Block
from assay.training.loop import Loop
from assay.training.step_record import StepRecord
from assay.training.stops import EarlyEnd, Unread
from assay.worker.phases import Phases
from assay.worker.result import Findings


class TimedBlocks:
    """Runs the timed blocks of one run, and reports each to `say`."""

    def __init__(self, phases: Phases, findings: Findings, ranks: Ranks, say: Callable[[Block], None]) -> None:
        self.steady: list[StepRecord] = []
        """Steps of the current block; the loop's observer appends them."""
        self._phases, self._findings, self._ranks, self._say = phases, findings, ranks, say

    def block(self, steps: int, work: Callable[[int], None], *, repeated: bool = False) -> None:
        """Run one block by calling `work`. A block that a budget cuts short counts with the steps that it has."""
        self.steady, stays, settling = [], len(self._phases.held_peaks), int(steps > 1)
        trim()
        stopped: EarlyEnd | None = None
        before: surroundings.Reading | None = None
        begun = 0.0
        try:
            if settling:
                self._phases.enter("settling")
                work(settling)
            self._phases.enter("steady")
            with self._phases.aside():
                before = surroundings.read()
            begun = self._phases.seconds()["steady"]
            work(steps - settling)
        except EarlyEnd as stop:
            stopped = stop
        lasted = self._phases.seconds().get("steady", 0.0) - begun
        self._phases.enter("recording")
        if self.steady and before is not None:
            read_in = "settling" if settling else "steady"
            peaks = [peak for phase, peak in self._phases.held_peaks[stays:] if phase == read_in]
            self._record(before, lasted, max(peaks, default=None), repeated)
        if stopped is not None:
            raise stopped

    def repeat(self, loop: Loop, asked: Callable[[], bool]) -> None:
        """Run blocks of discarded steps while `asked` returns True. A lack of data ends them with a note."""
        steps = max((block.steps for block in self._findings.blocks), default=0)

        def discard(count: int) -> None:
            records = loop.discard(count)
            if self._phases.current == "steady":
                self.steady += records

        while steps and asked():
            try:
                self.block(steps + 1, discard, repeated=True)
            except Unread as stop:
                self._findings.notes.append(f"a disturbed block could not be repeated: {stop}")
                return

    def _record(self, before: surroundings.Reading, lasted: float, peak: int | None, repeated: bool) -> None:
        after = surroundings.read()
        own = self._ranks.gather(json.dumps(after.own_seconds - before.own_seconds))
        around = surroundings.between(before, after, [float(json.loads(said)) for said in own])
        seconds = [record.seconds for record in self.steady]
        if not repeated:
            steady = self._findings.steady
            steady.seconds.extend(seconds)
            steady.data_seconds.extend(record.data_seconds for record in self.steady)
            steady.tokens = self.steady[-1].tokens
        self._say(
            Block(
                steps=len(seconds),
                seconds=sum(seconds),
                median_step_seconds=statistics.median(seconds),
                tokens=sum(record.tokens for record in self.steady),
                process_peak_bytes=peak,
                repeated=repeated,
                between_seconds=lasted - sum(seconds),
                **asdict(around),
            )
        )
