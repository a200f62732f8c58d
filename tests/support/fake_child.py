"""Children that measure nothing: they note who worked when, and can be told to die."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType

from assay.records.events import AGAIN, GO, EvaluationEvent, LogEvent, StartEvent, StepEvent, event_of
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import Cell

NO_PROCESS = 2**30
"""Number that no process has."""


class FakeFolder:
    """Events of three steps."""

    id = "a-run"

    def events(self) -> list[LogEvent]:
        return [
            StartEvent(event="start", resumed_at=0),
            *(StepEvent(event="step", step=n, loss=3.0 - n, seconds=0.1, tokens=8) for n in range(3)),
            EvaluationEvent(event="evaluation", step=3, loss=1.5, perplexity=4.5, bits_per_byte=2.2),
        ]


class Stage:
    """All children of a test: what they did, in order, and what is to happen to them."""

    def __init__(self, blocks: int = 5) -> None:
        self.blocks = blocks
        self.log: list[tuple[str, str]] = []
        self.alive: set[str] = set()
        self.most_alive = 0
        self.working: str | None = None
        self.deaths: dict[str, tuple[str, Status]] = {}
        """By cell: the piece of work in which it dies, and how that is recorded."""
        self.interrupts_at: tuple[str, str] | None = None
        self.disturbed: set[tuple[str, str]] = set()
        """Cells and pieces of work in which another program has both cores."""

    def start(self, cell: Cell) -> "FakeChild":
        self.alive.add(cell.name)
        self.most_alive = max(self.most_alive, len(self.alive))
        return FakeChild(self, cell)


class FakeChild(AbstractContextManager["FakeChild"]):
    """Speaks as `assay.launch.child.Child` does."""

    def __init__(self, stage: Stage, cell: Cell) -> None:
        self.finished = False
        self.folder = FakeFolder()
        self.upcoming: str | None = "start"
        self.pid = NO_PROCESS
        self.status = Status.DONE
        self._stage = stage
        self._cell = cell
        self._repeats = 0
        self._pieces = iter(["start", *(f"block {n}" for n in range(1, stage.blocks + 1)), "finish"])

    def turn(self, word: str = GO) -> Iterator[LogEvent]:
        piece = self._piece(word)
        assert not self.finished, "a dead child was given a turn"
        assert self._stage.working is None, "two children worked at a time"
        self._stage.working = self._cell.name
        if piece != "end":
            self._stage.log.append((self._cell.name, piece))
        yield event_of({"event": "phase", "name": "steady"})
        if "block" in piece:
            yield event_of({"event": "step", "step": 3, "loss": 2.5, "seconds": 0.1, "tokens": 8})
            yield event_of({"event": "step", "step": 4, "loss": None, "seconds": 0.1, "tokens": 8})
            yield event_of({"event": "block", **self._block((self._cell.name, piece) in self._stage.disturbed)})
        self._stage.working = None
        if self._stage.interrupts_at == (self._cell.name, piece):
            raise KeyboardInterrupt
        death, status = self._stage.deaths.get(self._cell.name, ("", Status.DONE))
        if piece in (death, "end"):
            self._end(status if piece == death else Status.DONE)
        elif "finish" in piece or "repeated" in piece:
            self.upcoming = "repeat"

    def _piece(self, word: str) -> str:
        if self.upcoming != "repeat":
            return next(self._pieces)
        self._repeats += word == AGAIN
        return f"repeated block {self._repeats}" if word == AGAIN else "end"

    def _block(self, disturbed: bool) -> dict[str, float | None]:
        block = {"steps": 5, "seconds": 1.0, "median_step_seconds": 0.2, "tokens": 5, "process_peak_bytes": None}
        return block | {"others_seconds": 2.0 if disturbed else 0.0, "cores": 2}

    def interrupt(self) -> None:
        self._stage.log.append((self._cell.name, "interrupted"))
        self._end(Status.INTERRUPTED)

    def kill(self) -> None:
        self._end(Status.KILLED)

    def result(self) -> RunResult:
        while not self.finished:
            list(self.turn())
        return RunResult(
            run=self._cell.name,
            status=self.status,
            reason=None if self.status is Status.DONE else "as the test wished",
            created="2026-11-21T08:00:00+00:00",
            identity="0" * 12,
            config=self._cell.run,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self.status)

    def _end(self, status: Status) -> None:
        if not self.finished:
            self.finished, self.status = True, status
            self._stage.alive.discard(self._cell.name)
