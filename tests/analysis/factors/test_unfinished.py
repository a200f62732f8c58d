from collections.abc import Callable, Mapping

import pytest

from assay.analysis.factors.unfinished import lost_effects
from assay.records.study import ComparisonRecord
from support.factorials import factorial, study

FACTORS = {"a": ["0", "1"], "b": ["0", "1"], "c": ["0", "1"]}
MAIN = [(("a", "1"),), (("b", "1"),), (("c", "1"),)]


def without(begins: Callable[[Mapping[str, str]], bool]) -> ComparisonRecord:
    """A factorial of three factors, whose other rows were held back."""
    whole = study(factorial(FACTORS), lambda levels: (1.0, 1.0, 1.0))
    ran = tuple(one for one in whole.cells if begins(one.cell.levels))
    left = tuple(one.cell for one in whole.cells if one not in ran)
    return whole.model_copy(update={"cells": ran, "held_back": left})


def changed(levels: Mapping[str, str]) -> int:
    return sum(level == "1" for level in levels.values())


def test_a_whole_factorial_lacks_nothing() -> None:
    assert lost_effects(without(lambda levels: True)) == []


def test_without_the_row_that_changes_all_their_interaction_is_not_known() -> None:
    lost = lost_effects(without(lambda levels: changed(levels) < 3))
    assert (("a", "1"), ("b", "1"), ("c", "1")) in lost
    assert lost[:3] == MAIN, "an effect is an average over all levels of the others"


def test_without_a_factor_its_effects_are_lost_and_the_others_are_not() -> None:
    lost = lost_effects(without(lambda levels: levels["c"] == "0"))
    assert lost == [one for one in lost if any(key == "c" for key, _ in one)]
    assert (("c", "1"),) in lost
    assert len(lost) == 4


@pytest.mark.parametrize("kind", ["comparison", "one_at_a_time"])
def test_a_design_without_average_effects_loses_none(kind: str) -> None:
    rows = [{"a": "0", "b": "0"}, {"a": "1", "b": "0"}, {"a": "0", "b": "1"}]
    whole = study(rows, lambda levels: (1.0, 1.0, 1.0), kind=kind)
    left = tuple(one for one in whole.cells if one.cell.levels["b"] == "1")
    ran = tuple(one for one in whole.cells if one not in left)
    assert lost_effects(whole.model_copy(update={"cells": ran, "held_back": tuple(one.cell for one in left)})) == []
