"""Time left of cells beside each other: proportional to work, and never less than the longest cell needs."""

from assay.records.study import Cell
from assay.report.terminal.board import Untimed
from support.scaled import STUDY, base

CELLS = STUDY.cells(base())


def test_the_longest_cell_decides_while_others_are_short() -> None:
    now = [0.0]
    left = Untimed(clock=lambda: now[0])
    control, again, longest, *others = CELLS
    assert left.seconds_left(CELLS) is None
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
    from assay.studies.isoflop.sizes import flops_of

    return flops_of(cell.run, "total")
