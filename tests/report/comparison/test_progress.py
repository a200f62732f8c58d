"""Progress of a comparison: the board of its cells, and its lines."""

import io
import re
from itertools import pairwise

import pytest

from assay.config import load
from assay.executors.base import Interrupting, News, Planned, Turn
from assay.records.status import Status
from assay.records.study import Cell
from assay.report.comparison import progress as module
from assay.report.comparison.progress import STOPPING, Board, Live, StudyLines, Untimed
from assay.studies.drift import nudged_copies
from assay.studies.plan import waves
from support.designs import conduct, design
from support.fake_child import Stage
from support.scaled import STUDY, base

BOARD_CELLS = STUDY.cells(base())


def test_the_longest_cell_decides_while_others_are_short() -> None:
    now = [0.0]
    left = Untimed(clock=lambda: now[0])
    control, again, longest, *others = BOARD_CELLS
    assert left.seconds_left(BOARD_CELLS) is None
    left.start(control)
    left.start(longest)
    now[0] = 2.0
    left.end(control)
    times = _work(longest) / _work(control)
    assert times > 100
    rest = left.seconds_left([longest, *others[-4:]])
    assert rest is not None
    assert abs(rest - (2.0 * times - 2.0)) < 1e-6, "it has worked for two seconds already"
    assert left.seconds_left([]) == 0.0
    left.end(again)
    assert left.seconds_left([]) == 0.0


def _work(cell: Cell) -> float:
    from assay.studies.isoflop_sizes import flops_of

    return flops_of(cell.run, "total")


PROGRESS_CELLS = design(load("demo"), ["sdpa_attention", "bf16_mixed"], seeds=2)


def hear(tell: object, deaths: dict[str, tuple[str, Status]] | None = None, resident: int = 9) -> None:
    stage = Stage()
    stage.deaths = deaths or {}
    conduct(waves(PROGRESS_CELLS, resident), stage.start, stage.blocks, tell)  # type: ignore[arg-type]


def test_pieces_count_down_to_nothing_even_when_cells_die() -> None:
    board, seen = Board(), []

    def tell(news: News) -> None:
        board.hear(news)
        seen.append(board.pieces[0])

    hear(tell, {PROGRESS_CELLS[2].name: ("block 2", Status.KILLED)})
    assert board.pieces == (56, 56)
    assert seen == sorted(seen)
    assert board.progress().startswith("8 of 8 runs")
    assert board.ended[PROGRESS_CELLS[2].name] == "killed"


def test_repeated_rounds_are_shown_and_leave_the_count_of_pieces() -> None:
    board, states, stage = Board(), set(), Stage()
    stage.disturbed = {(PROGRESS_CELLS[0].name, "block 3")}

    def tell(news: News) -> None:
        board.hear(news)
        states.update(board.states.values())

    conduct(waves(PROGRESS_CELLS, 9), stage.start, stage.blocks, tell)
    assert board.pieces == (56, 56)
    assert "timing repeated 1×" in states


def test_time_left_weighs_each_kind_of_piece_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    board, left = Board(), []

    def tell(news: News) -> None:
        board.hear(news)
        left.append(board.seconds_left())
        clock[0] += 1.0

    hear(tell)
    assert left[0] is None
    assert left[-1] == 0
    known = [value for value in left if value is not None]
    assert known[-1] <= known[0]


def test_the_last_finite_loss_of_a_running_cell_is_told() -> None:
    board, seen = Board(), list[str]()

    def tell(news: News) -> None:
        board.hear(news)
        seen.append(board.loss())

    hear(tell, {PROGRESS_CELLS[2].name: ("block 2", Status.KILLED)})
    steps = PROGRESS_CELLS[0].run.training.steps
    assert set(seen) - {""} == {f"loss 2.5000 after 4 of {steps} steps: {cell.name}" for cell in PROGRESS_CELLS}
    assert (seen[0], seen[-1]) == ("", "")


@pytest.mark.parametrize("width", [80, 100])
def test_a_board_with_a_long_name_is_no_wider_than_its_terminal(width: int) -> None:
    from rich.console import Console

    stack = "sdpa_attention+bf16_mixed+activation_checkpointing+gradient_accumulation:micro_batches=4"
    cells, live, stage, lines = design(load("demo"), [stack], seeds=2), Live(), Stage(), list[str]()

    def tell(news: News) -> None:
        live(news)
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(live._draw())
        lines.extend(console.export_text().splitlines())

    conduct(waves(cells, 9), stage.start, stage.blocks, tell)
    assert max(map(len, lines)) <= width
    assert any(line.startswith("loss 2.5000 after 4 of ") and line.rstrip().endswith("…") for line in lines)


def test_a_nudged_baseline_stands_below_the_cells_of_its_seed() -> None:
    from rich.console import Console

    live = Live()
    cells = design(load("demo"), ["sdpa_attention", "activation_checkpointing"], seeds=3)
    live(Planned((*waves(cells, 9), *((one,) for one in nudged_copies(cells, accelerated=False))), 5))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(live._draw())
    drawn = console.export_text()
    assert [drawn.count(f"seed {seed}") for seed in range(3)] == [1, 1, 1]
    assert all(f"\n{name} " in drawn for name in ("baseline (nudged)", "activation_checkpointing"))


def test_plain_lines_are_what_will_run_and_each_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with StudyLines() as lines:
        lines.prepare("reading the corpus", None)
        lines.prepare("tokenizing", 0.5)
        hear(lines, {PROGRESS_CELLS[3].name: ("start", Status.OUT_OF_MEMORY)})
        lines(Interrupting())
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "reading the corpus",
        "4 configurations × 2 seeds",
        "bf16_mixed, seed 0: out of memory (as the test wished); 1 of 8 runs",
        STOPPING,
    ]


@pytest.mark.parametrize(("seconds_each", "fewest", "most"), [(1.0, 4, 4), (100.0, 20, 60)])
def test_plain_lines_are_at_least_fifteen_seconds_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, seconds_each: float, fewest: int, most: int
) -> None:
    """Each piece of work takes so many seconds; in a long study lines are a twentieth of its time apart."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    lines, said = StudyLines(), list[tuple[float, str]]()

    def tell(news: News) -> None:
        now[0] += seconds_each * isinstance(news, Turn)
        lines(news)
        said.extend((now[0], line) for line in capsys.readouterr().err.splitlines())

    hear(tell)
    times = [at for at, _ in said]
    shape = r"\d of 8 runs(, about .* left)?; .*, seed \d: (timing \d/5|start.*|finishing|steady)"
    assert [line for _, line in said[1:] if not re.fullmatch(shape, line)] == []
    assert fewest <= len(times) <= most
    assert all(later - earlier >= max(15.0, 0.05 * later) for earlier, later in pairwise(times))


def test_the_share_of_a_preparation_that_is_done_is_said_from_time_to_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    lines = StudyLines()
    for step in range(10):
        now[0] = 4.0 * step
        lines.prepare("timing steps", step / 10)
    assert capsys.readouterr().err.splitlines() == [f"timing steps ({done}%)" for done in (0, 40, 80)]


@pytest.mark.parametrize(
    ("seeds", "processes", "resident", "seconds", "expected"),
    [
        (3, 1, 9, 162.0, "4 configurations × 3 seeds and 3 more baselines, about 2 min 40 s on this machine"),
        (1, 3, 9, 42.0, "4 configurations × 1 seed × 3 repeats and 1 more baseline, about 42 s on this machine"),
        (2, 1, 3, None, "4 configurations × 2 seeds and 4 more baselines"),
    ],
)
def test_a_board_opens_with_what_will_run_and_for_how_long(
    seeds: int, processes: int, resident: int, seconds: float | None, expected: str
) -> None:
    cells = design(load("demo"), ["sdpa_attention", "bf16_mixed"], seeds=seeds, processes=processes)
    nudged = nudged_copies(cells, accelerated=False)
    board = Board()
    board.hear(Planned((*waves(cells, resident), *((one,) for one in nudged)), 5, seconds=seconds))
    assert board.opening() == expected


def test_the_time_left_is_the_predicted_one_until_a_block_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    board, control = Board(), PROGRESS_CELLS[0]
    board.hear(Planned((PROGRESS_CELLS,), 5, seconds=100.0))
    board.hear(Turn(control, "start"))
    now[0] = 30.0
    assert board.seconds_left() == 70.0
    assert board.progress() == "0 of 8 runs, about 1 min 10 s left"
    now[0] = 200.0
    assert board.seconds_left() == 0.0
    board.hear(Turn(control, "block", 1))
    now[0] = 201.0
    board.hear(Turn(control, "block", 2))
    assert board.seconds_left() != 0.0


def test_a_board_that_is_drawn_shows_states_and_ends_clean(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    live = Live()
    shown: list[str] = []

    def tell(news: News) -> None:
        live(news)
        console = Console(width=100, record=True, file=io.StringIO())
        console.print(live._draw())
        shown.append(console.export_text())

    with live:
        hear(tell, {PROGRESS_CELLS[3].name: ("block 1", Status.KILLED)}, resident=3)
    joined = "\n".join(shown)
    assert "▶ timing 3/5" in joined
    assert "loss 2.5000 after 4 of " in joined
    assert "✗ killed" in shown[-1]
    assert "waiting" not in shown[-1]
    assert "10 of 10 runs" in shown[-1]
    assert capsys.readouterr().out == ""
