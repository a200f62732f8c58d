"""Published memory: deviations from additivity, and the search for the largest batch."""

from types import SimpleNamespace
from typing import Any

import pytest

from assay.estimator.memory_fit import MemoryFit


def test_savings_that_multiply_deviate_in_points_and_not_in_ratios() -> None:
    from published_memory import deviation

    figures = {("default", "none"): 4.0, ("layers", "none"): 8.0, ("default", "sgd"): 2.0, ("layers", "sgd"): 4.0}
    found = deviation(figures, "layers", "sgd")
    assert found.points == pytest.approx(100 * (0 - 1 + 0.5))
    assert found.ratio == pytest.approx(0)


def test_published_figures_are_those_of_the_document() -> None:
    from published_memory import CELLS, RUNGS, SHAPES, published_figures

    second, fifth = published_figures("fahey"), published_figures("gpt124m-colab")
    assert second["Context x2, Bfloat 16"] == 3.71
    assert second.keys() == {f"{shape}, {cell}" for shape in SHAPES.values() for cell in CELLS.values()}
    assert [fifth[row] for row, _, _ in RUNGS] == [37, 32.4, 36.9, 25.4, 37.4, 29.6, 38.9]


@pytest.mark.parametrize("limit", [1, 13, 28, 29, 67])
def test_the_largest_batch_is_found(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import published_memory

    def answered(python: str, rung: str, batch: int) -> Any:
        return SimpleNamespace(fit=MemoryFit.YES if batch <= limit else MemoryFit.NO)

    monkeypatch.setattr(published_memory, "answered", answered)
    assert published_memory.largest_batch("python", "baseline", 28) == limit
