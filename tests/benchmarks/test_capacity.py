"""The benchmark of capacity: its rows are kept and judged, and a limited child trains what fits and no more."""

from pathlib import Path

import pytest


def rows(*found: tuple[int, int]) -> list[object]:
    from capacity import TASKS, Row  # type: ignore[import-not-found]

    return [Row(TASKS[place], answer, 10**6, true) for place, (answer, true) in enumerate(found)]


@pytest.mark.parametrize(
    ("found", "passes"),
    [
        (((40, 40), (50, 50)), True),
        (((40, 40), (50, 51)), True),
        (((51, 50), (40, 40)), False),
        (((30, 31), (40, 40)), False),
        (((99, 100), (99, 100), (99, 100)), False),
    ],
)
def test_an_answer_may_never_be_over_and_rarely_under(found: tuple[tuple[int, int], ...], passes: bool) -> None:
    import capacity

    assert capacity.passes(rows(*found)) is passes


def test_the_true_maximum_is_searched_upwards_and_downwards(monkeypatch: pytest.MonkeyPatch) -> None:
    import capacity
    from assay.hardware import Machine

    machine = Machine(processor="any", cores=1, memory_bytes=2**34)
    task = capacity.TASKS[1]
    answer = capacity.measure.__globals__["largest"](
        capacity.load("demo", task.overrides, task.optimizations), "training.batch_size", task.budget, machine
    ).value
    for true in (answer - 2, answer, answer + 3):
        monkeypatch.setattr(capacity, "trains", lambda task, sequences, true=true: sequences <= true)
        row = capacity.measure(task, machine)
        assert (row.answer, row.true) == (answer, true)


def test_a_benchmark_goes_on_with_the_rows_that_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import capacity

    measured: list[object] = []

    def measure(task: object, machine: object) -> object:
        measured.append(task)
        if len(measured) == 3:
            raise KeyboardInterrupt
        return capacity.Row(task, 40, 10**6, 40)

    monkeypatch.setattr(capacity, "measure", measure)
    arguments = ["--rows", str(tmp_path / "rows.json"), "--out", str(tmp_path / "page.md")]
    with pytest.raises(KeyboardInterrupt):
        capacity.main(arguments)
    assert capacity.main(arguments) == 0
    assert len(measured) == len(capacity.TASKS) + 1
    assert "0 of 12 answers ran out of memory. One sequence more ran out in 12 of 12." in capsys.readouterr().out
    assert (tmp_path / "page.md").exists()


@pytest.mark.slow
def test_a_limited_child_trains_what_fits_and_not_far_more() -> None:
    import capacity
    from assay.hardware import detect

    task = capacity.Task("2/4/64/128/500", "sdpa_attention", 60 * 10**6)
    row = capacity.measure(task, detect())
    assert row.fits
    assert row.share >= 0.9
