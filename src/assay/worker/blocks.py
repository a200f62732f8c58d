"""Division of a process's steps into first step, trace, warm-up and timed blocks, and the timed blocks.

All steps train. The first step is separate because it pays for one-time costs (allocations, compilation). The second is
separate because it is traced, and the next two because caches and clocks settle. The remaining steps are cut into equal
blocks, and the remainder of the division is added to the warm-up. A run of few steps has fewer or shorter pieces, and a
run of one step is only traced. If the update of the traced step is skipped, the next one is traced as well, and the
later pieces become shorter.

A timed block is consecutive steps; other cells of a comparison run between two blocks. The first step of a block finds
memory and caches as the other cells left them. So it is not timed, and memory is measured over it. A step that is
replayed by a reference (`values.replayed_steps`), or in which the heap is counted, is not timed. The step after it
settles. In a block of one step, that step is both timed and measured. The other activity of the machine is read before
and after the timed steps, outside their time. The clock of the phase runs on between two steps, so work that a program
does there is known as well (`Block.between_seconds`).

A disturbed block is repeated after the run has been evaluated and saved. Its steps are discarded, so repeating changes
nothing in the training.
"""

import json
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal, NamedTuple

from assay.config.run import ResolvedRun
from assay.instruments.memory.resident_memory import trim
from assay.instruments.rates import machine_load
from assay.instruments.rates.gpu_state import GpuSampler
from assay.parallel.process_rank import Ranks
from assay.records.timing import Block
from assay.training.loop import Loop
from assay.training.step_record import StepRecord
from assay.training.stops import EarlyEnd, Unread
from assay.worker.phases import Phases
from assay.worker.result import RunFindings

WARMUP = 2
BLOCKS = 5
"""Number of timed blocks of a run without turns."""


@dataclass(frozen=True)
class WorkPlan:
    """Number of steps of each piece, in the order of execution."""

    first: int
    trace: int
    warmup: int
    blocks: tuple[int, ...]

    @property
    def total(self) -> int:
        """Sum of all pieces."""
        return self.first + self.trace + self.warmup + sum(self.blocks)


def steps_left(run: ResolvedRun, step: int, tokens: int) -> int:
    """Number of steps from `step` to the last, or to the step that spends the budget of tokens."""
    left = run.training.steps - step
    if run.training.tokens is not None:
        left = min(left, math.ceil((run.training.tokens - tokens) / run.tokens_per_step))
    return max(left, 0)


def plan(steps: int, blocks: int = BLOCKS, traced: int = 1) -> WorkPlan:
    """Divide `steps` into pieces, with at most `blocks` timed blocks of at least one step."""
    trace = min(steps, traced)
    first = min(steps - trace, 1)
    rest = steps - first - trace
    count = min(blocks, rest - min(WARMUP, max(rest - 1, 0)))
    each = (rest - min(WARMUP, rest - 1)) // count if count else 0
    return WorkPlan(first, trace, rest - count * each, (each,) * count)


PieceKind = Literal["settling", "steady", "replay", "heap"]


class Piece(NamedTuple):
    """Consecutive steps of a block that are taken in the same way."""

    kind: PieceKind
    steps: int


def block_pieces(first: int, steps: int, replayed: Collection[int], heap: int | None = None) -> list[Piece]:
    """Cut a timed block of `steps` steps from `first` on into pieces, in order.

    The first step settles, and so does one after a replayed step or after the one whose heap is counted. If no step
    would be timed, all that settle are.
    """
    pieces: list[Piece] = []
    for step in range(first, first + steps):
        kind: PieceKind = "replay" if step in replayed else "heap" if step == heap else "steady"
        before = pieces[-1].kind if pieces else None
        if kind == "steady" and before not in ("steady", "settling") and steps > 1:
            kind = "settling"
        if kind == before == "steady":
            pieces[-1] = Piece(kind, pieces[-1].steps + 1)
        else:
            pieces.append(Piece(kind, 1))
    if any(kind == "steady" for kind, _ in pieces):
        return pieces
    return [Piece("steady" if kind == "settling" else kind, count) for kind, count in pieces]


class TimedBlocks:
    """Runs the timed blocks of one run, and reports each to `say`."""

    def __init__(
        self, phases: Phases, findings: RunFindings, ranks: Ranks, gpu: GpuSampler, say: Callable[[Block], None]
    ) -> None:
        self.steady: list[StepRecord] = []
        """Timed steps of the current block."""
        self._phases, self._findings, self._ranks, self._gpu, self._say = phases, findings, ranks, gpu, say
        self._around: list[tuple[machine_load.LoadReading, machine_load.LoadReading]] = []
        """Readings before and after each timed piece of the current block."""
        self._clocks: list[float] = []
        """Mean clock of the GPU in each block so far."""
        self._only_replayed = False
        self._lowest: int | None = None
        """Lowest peak of resident memory in a settling step so far."""
        self._clock, self._between = 0.0, list[float]()
        """Reading of the phase's clock after the last step, and the time from each step's clock to the next one's."""

    def block(
        self, pieces: Sequence[Piece], work: Mapping[PieceKind, Callable[[int], None]], *, repeated: bool = False
    ) -> None:
        """Run one block, each of its pieces by the `work` of its kind, in a phase of that name.

        A block that a budget cuts short counts with the steps that it has. The step after a replayed one finds memory
        that the replay has left, so the least peak of all settling steps so far counts.
        """
        self.steady, self._around, self._between, stays = [], [], [], len(self._phases.held_peaks)
        begun = self._phases.seconds().get("steady", 0.0)
        self._only_replayed = all(kind == "replay" for kind, _ in pieces)
        trim()
        stopped: EarlyEnd | None = None
        try:
            for kind, steps in pieces:
                self._phases.enter(kind)
                self._piece(kind, partial(work[kind], steps))
        except EarlyEnd as stop:
            stopped = stop
        lasted = self._phases.seconds().get("steady", 0.0) - begun
        self._phases.enter("recording")
        if self.steady:
            read_in = "settling" if any(kind == "settling" for kind, _ in pieces) else "steady"
            peaks = [peak for phase, peak in self._phases.held_peaks[stays:] if phase == read_in]
            # Replayed and profiled steps leave memory in the process, which later blocks would count.
            self._lowest = min([*peaks, *([] if self._lowest is None else [self._lowest])], default=None)
            self._record(lasted, self._lowest, repeated)
        if stopped is not None:
            raise stopped

    def stepped(self, record: StepRecord, phase: str) -> None:
        """Count a step of this phase if it is timed. Where a block has only replayed steps, these are."""
        if phase == "steady" or (phase == "replay" and self._only_replayed):
            self.steady.append(record)
        if phase == "steady":
            now = self._phases.seconds()["steady"]
            self._between.append(now - self._clock - record.seconds)
            self._clock = now

    def _usual_between(self) -> float | None:
        """Return the median time between two steps; None if steps are read together, or none follows another."""
        return statistics.median(self._between) if self._between and min(self._between) >= 0 else None

    def _piece(self, kind: PieceKind, work: Callable[[], None]) -> None:
        """Do the steps of a piece. The machine's other activity is read before and after timed ones."""
        if kind == "steady":
            with self._phases.aside():
                self._gpu.begin()
                before = machine_load.read()
            self._clock = self._phases.seconds()["steady"]
            try:
                work()
            finally:
                with self._phases.aside():
                    self._around.append((before, machine_load.read()))
                    self._gpu.end()
            return
        work()
        if kind != "settling":
            self._phases.enter("recording")
            trim()

    def repeat(self, loop: Loop, asked: Callable[[], bool]) -> None:
        """Run blocks of discarded steps while `asked` returns True. A lack of data ends them with a note."""
        steps = max((block.steps for block in self._findings.blocks), default=0)

        def discard(count: int) -> None:
            records = loop.discard(count)
            if self._phases.current == "steady":
                self.steady += records

        while steps and asked():
            try:
                self.block(block_pieces(0, steps + 1, ()), {"settling": discard, "steady": discard}, repeated=True)
            except Unread as stop:
                self._findings.notes.append(f"a disturbed block could not be repeated: {stop}")
                return

    def _record(self, lasted: float, peak: int | None, repeated: bool) -> None:
        spent = sum(after.own_seconds - before.own_seconds for before, after in self._around)
        own = self._ranks.gather(json.dumps(spent))
        around = machine_load.during(self._around, [float(json.loads(said)) for said in own])
        gpu, clocks = self._gpu.state(), list(self._clocks)
        self._clocks += [] if gpu is None else [gpu.clock_hertz]
        seconds = [record.seconds for record in self.steady]
        if not repeated:
            steady = self._findings.steady
            steady.seconds.extend(seconds)
            steady.data_seconds.extend(record.data_seconds for record in self.steady)
            steady.counted.extend(record.tokens for record in self.steady)
        self._say(
            Block(
                steps=len(seconds),
                seconds=sum(seconds),
                median_step_seconds=statistics.median(seconds),
                tokens=sum(record.tokens for record in self.steady),
                process_peak_bytes=peak,
                repeated=repeated,
                between_seconds=lasted - sum(seconds),
                usual_between_seconds=self._usual_between(),
                gpu=gpu,
                host_seconds=_sum(record.host_seconds for record in self.steady),
                device_seconds=_sum(record.device_seconds for record in self.steady),
                usual_gpu_clock_hertz=statistics.median(clocks) if clocks else None,
                **asdict(around),
            )
        )


def _sum(seconds: Iterable[float | None]) -> float | None:
    """Sum of the seconds that are known; None if none are: on a CPU, or for events without a time."""
    known = [one for one in seconds if one is not None and math.isfinite(one)]
    return math.fsum(known) if known else None
