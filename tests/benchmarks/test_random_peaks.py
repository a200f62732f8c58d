"""Drawn stacks and shapes: the predicted peak is the measured one to the byte, of a mixture within 128 bytes."""

import pytest

QUICK, ALL = 4, 200


@pytest.mark.parametrize(
    "number", [*range(QUICK), *(pytest.param(n, marks=pytest.mark.slow) for n in range(QUICK, ALL))]
)
def test_the_peak_of_a_random_configuration_is_the_measured_one(number: int) -> None:
    from random_peaks import cells  # type: ignore[import-not-found]

    (cell,) = cells([number])
    assert cell.within, f"{cell.error:+d} of {cell.measured} bytes: {cell.run}"


def test_draws_repeat_and_differ() -> None:
    from random_peaks import drawn

    assert drawn(3) == drawn(3)
    assert len({drawn(number).model_dump_json() for number in range(20)}) == 20


def test_an_error_beyond_its_bound_is_told_in_the_page_and_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import random_peaks

    run = random_peaks.drawn(0)
    exact, wrong = (random_peaks.Cell(0, run, 10**6 + error, 10**6) for error in (0, 2))
    for found, code in (((exact,), 0), ((exact, wrong), 1)):
        monkeypatch.setattr(random_peaks, "cells", lambda numbers, found=found: iter(found))
        assert random_peaks.main(["--count", "1"]) == code
    assert "+0.0002%" in capsys.readouterr().out
