"""Points: their file, their accounting of FLOPs, and whether their losses fall."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.api import scaling
from assay.errors import UsageError
from assay.scaling.fitting import FitResult, check_falling, fit, mean_slopes, unexplained_scatter
from assay.scaling.frontier import CountedMinimum, minimum
from assay.scaling.laws import form_named, forms
from assay.scaling.points import (
    MOST_POINTS,
    PLAIN,
    Accounting,
    Points,
    accounting,
    check,
    planned_points,
    read_points,
    spent_flops,
)
from assay.scaling.published import BESIROGLU, FRONTIERS
from support.laws import design, drawn, known_law

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
        (
            "parameters,tokens,loss,trunk",
            [*((*row, "a") for row in ROWS), (*ROWS[2], "")],
            "the same point twice, as its points 3 and 9",
        ),
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
    many = planned_points(parameters=np.geomspace(1e6, 1e9, MOST_POINTS + 1), tokens=1e9)
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


SIZES, RATIOS = (3e7, 1e8, 3e8, 1e9), (3, 10, 30, 100, 300)


def points(factor: float, power: float = 0.0) -> Points:
    """Points of a published law, whose FLOPs are some times 6·N·D, with another factor for each size."""
    rows = np.array([(size, size * ratio) for size in SIZES for ratio in RATIOS])
    noise = 1 + 0.003 * ((np.arange(len(rows)) * 7) % 5 - 2)
    found = planned_points(parameters=rows[:, 0], tokens=rows[:, 1])
    counted = factor * (rows[:, 0] / 1e8) ** power * 6 * rows[:, 0] * rows[:, 1]
    return replace(found, loss=BESIROGLU.loss(rows[:, 0], rows[:, 1]) * noise, counted_flops=counted)


@pytest.mark.parametrize(
    ("factor", "plain"), [(1.0, True), (1.029, True), (0.971, True), (1.031, False), (0.969, False)]
)
def test_flops_contradict_6nd_from_3_percent_on(factor: float, plain: bool) -> None:
    found = accounting(points(factor))
    assert found.plain is plain
    assert bool(found.warning) is not plain


def test_points_without_flops_of_their_own_contradict_nothing() -> None:
    assert accounting(replace(points(1.67), counted_flops=None)) is PLAIN


def test_the_factor_and_its_trend_over_size_are_said() -> None:
    flat, falling, growing = (accounting(points(1.67, power)) for power in (0.0, -0.1, 0.1))
    assert "1.67 times 6·N·D, about the same at all sizes" in flat.warning
    assert "falls with size, from 1.88 at 30.0M to 1.33 at 1.00B parameters" in falling.warning
    assert "grows with size, from 1.48 at 30.0M to 2.1 at 1.00B parameters" in growing.warning
    assert falling.power == pytest.approx(-0.1)


@pytest.mark.parametrize("size", [1e6, 3e7, 2e8, 1e9, 1e12])
@pytest.mark.parametrize("power", [-0.5, 0.0, 0.3])
def test_size_tokens_and_flops_follow_from_each_other(size: float, power: float) -> None:
    found = accounting(points(2.0, power))
    flops = found.flops(size, 1e10)
    assert found.tokens(size, flops) == pytest.approx(1e10)
    assert found.parameters(1e10, flops) == pytest.approx(size)


def test_a_factor_that_is_no_power_of_the_size_stays_among_those_of_the_points() -> None:
    """The smaller half of the models counts its FLOPs otherwise."""
    given = points(1.0)
    assert given.counted_flops is not None
    given = replace(given, counted_flops=given.counted_flops * np.where(given.parameters < 2e8, 1.6, 1.0))
    found = accounting(given)
    assert (found.factor(1e3), found.factor(1e12)) == (pytest.approx(1.6), pytest.approx(1.0))
    assert "from 1.6 at 30.0M to 1 at 1.00B parameters" in found.warning
    for size in (1e6, 3e7, 2e8, 9e8, 1e12):
        assert found.parameters(1e10, found.flops(size, 1e10)) == pytest.approx(size)


def test_beyond_the_sizes_the_factor_is_that_of_the_nearest() -> None:
    found = accounting(points(1.67, -0.1))
    assert found.factor(1e12) == pytest.approx(found.factor(1e9))
    assert found.factor(1e3) == pytest.approx(found.factor(3e7))


@pytest.mark.parametrize("power", [0.0, -0.1])
def test_an_answer_costs_what_was_asked_and_no_other_size_is_better(power: float) -> None:
    counted = accounting(points(1.67, power))
    best = CountedMinimum(BESIROGLU, counted).at(1e20)
    assert float(counted.flops(best.parameters, best.tokens)) == pytest.approx(1e20)
    sizes = best.parameters * np.geomspace(0.5, 2, 201)
    losses = BESIROGLU.loss(sizes, counted.tokens(sizes, 1e20))
    assert best.loss is not None
    assert best.loss <= losses.min() * (1 + 1e-9)


def test_with_one_factor_the_optimum_is_that_of_the_compute_over_the_factor() -> None:
    counted = Accounting(1.67, 0.0, (1e7, 1e9), (1.67, 1.67))
    best, plain = CountedMinimum(BESIROGLU, counted).at(1.67e20), minimum(BESIROGLU).at(1e20)
    assert best.parameters == pytest.approx(plain.parameters, rel=1e-3)
    assert best.tokens == pytest.approx(plain.tokens, rel=1e-3)


def test_optimal_growth_and_predict_count_as_the_points_do() -> None:
    given = points(1.67, -0.1)
    counted = accounting(given)
    found = scaling.optimal(flops=1e20, points=given, tokens_per_parameter=100, inference_tokens=1e12)
    own, best = found.answers["your points"], found.answers["your points"].optimum
    assert best is not None
    assert own.overtrained is not None
    assert own.served is not None
    for one in (best, own.overtrained.model, own.served.model):
        assert float(counted.flops(one.parameters, one.tokens)) == pytest.approx(one.flops)
    assert best.flops == 1e20
    assert own.frontier.reach.most == pytest.approx(spent_flops(given).max())
    hoffmann = found.answers["Hoffmann 1"].optimum
    assert hoffmann is not None
    assert hoffmann == FRONTIERS["Hoffmann 1"].at(1e20)

    grown = scaling.growth(10, parameters=1e8, tokens=1e10, points=given).answers["your points"]
    assert grown.flops == pytest.approx(10 * float(counted.flops(1e8, 1e10)))

    law = scaling.fit(given, hold_out=False, draws=20)
    asked = scaling.predict(law, flops=1e20).points
    assert float(counted.flops(asked.parameters[0], asked.tokens[0])) == pytest.approx(1e20)
    asked = scaling.predict(law, flops=1e20, parameters=2e8).points
    assert float(counted.flops(2e8, asked.tokens[0])) == pytest.approx(1e20)


def test_isoflop_has_the_budgets_of_the_runs() -> None:
    """Budgets of equal counted FLOPs; their 6·N·D differ by size, so that none of them would have three sizes."""
    counted, rows = accounting(points(2.0, -0.3)), []
    for flops in (1e19, 1e20, 1e21):
        for size in (1e8, 2e8, 4e8, 8e8, 1.6e9, 3.2e9):
            tokens = float(counted.tokens(size, flops))
            rows.append((size, tokens, float(BESIROGLU.loss(size, tokens)), flops))
    columns = np.array(rows).T
    found = scaling.isoflop(Points(columns[0], columns[1], columns[2], counted_flops=columns[3]), draws=20)
    assert [one.flops for one in found.parabolas] == pytest.approx([1e19, 1e20, 1e21])
    assert any("times 6·N·D" in one for one in found.optima.warnings)
    size, tokens = found.optima.at(1e20)
    assert float(found.optima.accounting.flops(size, tokens)) == pytest.approx(1e20, rel=1e-6)


@pytest.mark.parametrize("name", forms())
def test_every_known_law_falls(name: str) -> None:
    law = known_law(name)
    check_falling(FitResult(law, 0.0, drawn(law, 40, 0, 0.01)))


@pytest.mark.parametrize("name", ["hoffmann", "kaplan-joint", "kaplan-compute", "saturating"])
def test_rising_losses_are_a_sentence(name: str) -> None:
    falling = drawn(known_law(name), 30, 0, 0.001)
    rising = replace(falling, loss=10 / falling.loss)
    with pytest.raises(UsageError, match="the losses do not fall"):
        check_falling(fit(rising, form_named(name)))


@pytest.mark.parametrize("name", ["hoffmann", "kaplan-size", "saturating"])
def test_losses_without_a_trend_are_a_sentence(name: str) -> None:
    some = design(30, 0)
    losses = 3 * np.exp(0.01 * np.random.default_rng(1).standard_normal(30))
    with pytest.raises(UsageError, match="the losses do not fall"):
        check_falling(fit(replace(some, loss=losses), form_named(name)))


def test_a_loss_of_size_alone_falls() -> None:
    some = design(30, 0)
    law = known_law("kaplan-size")
    check_falling(fit(replace(some, loss=law.losses(some))))


def test_slopes_are_those_of_the_formula() -> None:
    law = known_law("kaplan-size")
    assert mean_slopes(FitResult(law, 0.0, drawn(law, 20, 0, 0.0))) == pytest.approx([-0.076], rel=1e-6)


def test_compute_that_follows_from_size_and_data_has_a_slope() -> None:
    law = known_law("kaplan-compute")
    some = drawn(law, 20, 0, 0.0)
    assert some.counted_flops is None
    assert mean_slopes(FitResult(law, 0.0, some)) == pytest.approx([-0.057], rel=1e-6)


def test_a_perfect_law_leaves_nothing_and_a_constant_leaves_all() -> None:
    form = form_named("kaplan-size")
    sizes = np.geomspace(1e7, 1e10, 20)
    exact = replace(
        planned_points(parameters=sizes), loss=known_law("kaplan-size").losses(planned_points(parameters=sizes))
    )
    assert unexplained_scatter(FitResult(known_law("kaplan-size"), 0.0, exact)) < 1e-6
    flat = form.of(1.0, 1e-9)
    spread: Points = replace(exact, loss=np.exp(np.tile([-0.1, 0.1], 10)))
    assert unexplained_scatter(FitResult(flat, 0.0, spread)) == pytest.approx(19 / 18, rel=1e-3)
