"""Points of a CSV file: which columns are known, how the third follows, and what is no point."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.errors import UsageError
from assay.scaling.points import MOST_POINTS, Points, check, planned, read_points

ROWS = [(1e6 * (1 + one % 3), 1e7 * (1 + one), 5 - 0.1 * one) for one in range(8)]


def written(place: Path, heading: str, rows: list[tuple[float, ...]]) -> Path:
    path = place / "points.csv"
    path.write_text("\n".join([heading, *(",".join(map(repr, row)) for row in rows)]))
    return path


def test_any_two_of_size_data_and_compute_suffice(tmp_path: Path) -> None:
    whole = read_points(written(tmp_path, "parameters,tokens,loss", ROWS))
    flops = read_points(written(tmp_path, "N,Training FLOP,loss", [(n, 6 * n * d, loss) for n, d, loss in ROWS]))
    data = read_points(written(tmp_path, "loss,D,flops", [(loss, d, 6 * n * d) for n, d, loss in ROWS]))
    for found in (flops, data):
        assert found.parameters == pytest.approx(whole.parameters)
        assert found.tokens == pytest.approx(whole.tokens)
        assert found.loss == pytest.approx(whole.loss)
    assert whole.flops == pytest.approx([6 * n * d for n, d, _ in ROWS])


def test_the_highest_losses_are_left_out(tmp_path: Path) -> None:
    points = read_points(written(tmp_path, "parameters,tokens,loss", ROWS))
    assert np.sort(points.without_highest(3).loss) == pytest.approx(sorted(row[2] for row in ROWS)[:5])
    assert [len(points.without_highest(count)) for count in (0, 7, 8, 9, 99)] == [8, 1, 0, 0, 0]


def test_the_published_points_are_read(shared: Callable[[str], Path]) -> None:
    points = read_points(shared("chinchilla/hoffmann_figure4_extracted.csv"))
    assert len(points) == 245
    assert 2 < points.loss.min() < points.loss.max() < 6


@pytest.mark.parametrize(
    ("heading", "rows", "says"),
    [
        ("parameters,tokens,loss", ROWS[:5], "has 5 points; the law needs at least 6"),
        ("parameters,loss", [row[1:] for row in ROWS], "needs a column loss, and two of the columns"),
        ("parameters,tokens", [row[:2] for row in ROWS], "needs a column loss"),
        ("parameters,tokens,loss", [*ROWS, (1e6, 1e7, -1.0)], "line 10: loss=-1 is not possible"),
        ("parameters,tokens,loss", [*ROWS, (1e6, 1e7, float("nan"))], "line 10: loss=nan is not possible"),
        ("parameters,tokens,loss", [(1e6, d, loss) for _, d, loss in ROWS], "one model size only"),
        ("N,D,loss,flops", [(n / 100, d, loss, 6 * n * d) for n, d, loss in ROWS], "line 2: flops=6e.13, but 6·N·D is"),
        ("parameters,tokens,loss", [*ROWS, ROWS[2]], "the same point twice, as its points 3 and 9"),
        ("parameters,tokens,loss", [*ROWS, (0.07, 1e7, 3.0)], "line 10: parameters=0.07 is not possible; write the"),
        ("parameters,tokens,loss", [*ROWS, (1e6, 0.3, 3.0)], "line 10: tokens=0.3 is not possible"),
        ("parameters,tokens,loss", ROWS[:1], "has 1 point; the law"),
        ("N,D,loss,loss", [(n, d, loss, loss) for n, d, loss in ROWS], "has the column 'loss' twice"),
        ("N;D;loss", [(n,) for n, _, _ in ROWS], "separates its columns by semicolons"),
        ("N\tD\tloss", [(n,) for n, _, _ in ROWS], "separates its columns by tabs"),
        ("N,D,loss", [(n, 1e7 * (1 + row % 2), loss) for row, (n, _, loss) in enumerate(ROWS)], "only 2 values of"),
        ("N,D,loss", [(n, d, 3.0) for n, d, _ in ROWS], "equal losses only"),
        ("N,D,loss", [*ROWS, (1e6, 1e7, 3.0, 4.0)], "line 10 has more fields than the first line has names"),
        ("N,parameters,D,loss", [(n, n, d, loss) for n, d, loss in ROWS], "N and parameters for one quantity"),
        ("N,D,loss", [*ROWS, (1e6, 1e7, 1e-301)], "line 10: loss=1e-301 is not possible"),
    ],
)
def test_points_that_cannot_determine_a_law_are_a_sentence(
    tmp_path: Path, heading: str, rows: list[tuple[float, ...]], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        check(read_points(written(tmp_path, heading, rows)), ("parameters", "tokens"), 6, "points.csv")


@pytest.mark.parametrize("text", ["N,D,loss\r" + "1,1,3\r" * 200_000, "N,D,loss\n" + "1," * 60_000])
def test_a_table_that_would_take_much_memory_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "points.csv").write_text(text, newline="")
    with pytest.raises(UsageError, match="has more than 200,000 lines, or a line of more than 100,000 characters"):
        read_points(tmp_path / "points.csv")


def test_more_points_than_memory_allows_are_refused() -> None:
    many = planned(parameters=np.geomspace(1e6, 1e9, MOST_POINTS + 1), tokens=1e9)
    with pytest.raises(UsageError, match="list has 50,001 points; a law is fitted to at most 50,000"):
        check(replace(many, loss=np.full(MOST_POINTS + 1, 3.0)), ("parameters",), 6, "the list")


def test_flops_that_differ_a_little_from_six_n_d_are_allowed(tmp_path: Path) -> None:
    rows = [(n, d, loss, 8 * n * d) for n, d, loss in ROWS]
    points = read_points(written(tmp_path, "N,D,loss,flops", rows))
    assert points.flops == pytest.approx([6 * n * d for n, d, _ in ROWS])


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffparameters,tokens,loss", ROWS)
    assert len(read_points(path)) == len(ROWS)


def test_a_file_that_is_no_table_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_points(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("parameters,tokens,loss\n")
    with pytest.raises(UsageError, match="has no points"):
        read_points(tmp_path / "empty.csv")
    (tmp_path / "words.csv").write_text("parameters,tokens,loss\n1e6,many,3\n")
    with pytest.raises(UsageError, match=r"line 2: the column tokens has .many.; write"):
        read_points(tmp_path / "words.csv")


def test_a_file_that_is_no_text_or_too_long_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_bytes("N,D,loss\n1e6,1e7,3\u00e9".encode("latin-1"))
    with pytest.raises(UsageError, match="is not UTF-8 at byte 18; save it as CSV in UTF-8"):
        read_points(tmp_path / "other.csv")


def test_points_of_a_program_have_the_limits_of_a_file() -> None:
    sizes, tokens, losses = (np.array(column) for column in zip(*ROWS, strict=True))
    with pytest.raises(UsageError, match=r"the list has a model size of 0\.001; write plain numbers"):
        check(Points(sizes / 1e9, tokens, losses), ("parameters", "tokens"), 6, "the list")


def test_the_order_of_points_is_theirs(tmp_path: Path) -> None:
    """Points in their own order are the same, whichever order they were given in."""
    once = read_points(written(tmp_path, "parameters,tokens,loss", ROWS)).in_order()
    turned = read_points(written(tmp_path, "parameters,tokens,loss", ROWS[::-1])).in_order()
    assert np.all(np.diff(once.parameters) >= 0)
    assert (once.parameters == turned.parameters).all()
    assert (once.loss == turned.loss).all()


def test_empty_lines_count_as_lines_and_not_as_rows(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("N,D,loss\n\n1e6,1e7,3\n\n\n1e6,2e7,many\n")
    with pytest.raises(UsageError, match=r"line 6: the column loss has .many."):
        read_points(tmp_path / "points.csv")
