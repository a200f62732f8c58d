from collections.abc import Mapping

import pytest

from assay.analysis.choices.sign_changes import sign_changes
from assay.analysis.comparison import Comparison, analyse
from support.comparisons import record
from support.swept import Figures, factorial_record

VARY = {"model.n_layer": [2, 4], "training.weight_decay": [0.1, 0.2]}


def effect(shallow: float, deep: float) -> Comparison:
    """Losses in which a larger weight decay changes the loss by other amounts at each depth."""

    def of(levels: Mapping[str, str]) -> Figures:
        is_deep, decayed = levels["model.n_layer"] == "4", levels["training.weight_decay"] == "0.2"
        return 1, 1, 2.4 - 0.3 * is_deep + decayed * (deep if is_deep else shallow)

    return analyse(factorial_record(VARY, of))


def test_an_effect_that_changes_sign_is_found_with_its_sizes() -> None:
    (found,) = sign_changes(effect(-0.1, 0.1))
    assert (found.metric.name, found.factor, found.level, found.control) == (
        "val_loss", "training.weight_decay", "0.2", "0.1",
    )  # fmt: skip
    assert (found.other, found.lowers_at, found.raises_at, found.rest) == ("model.n_layer", "2", "4", ())
    assert found.lowered.fraction == pytest.approx(-0.1 / 2.4, abs=0.003)
    assert found.raised.fraction == pytest.approx(0.1 / 2.1, abs=0.003)


@pytest.mark.parametrize("sizes", [(-0.1, -0.05), (-0.1, 0.0), (0.0, 0.0), (0.1, 0.2)])
def test_effects_of_one_sign_or_too_small_to_tell_are_not(sizes: tuple[float, float]) -> None:
    assert sign_changes(effect(*sizes)) == ()


def test_a_study_with_one_factor_has_none() -> None:
    assert sign_changes(analyse(record(seeds=3))) == ()
