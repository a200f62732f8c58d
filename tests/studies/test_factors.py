import pytest

from assay.config import load
from assay.studies.factors import Factor, factor, merge_changes


def test_a_list_has_values_and_placebos() -> None:
    found = factor("optimizations", ["none", "lion", {"placebo": "gradient scaler"}])
    assert found.levels == ("none", "lion", "placebo: gradient scaler")
    assert [dict(found.at(level)) for level in found.levels] == [
        {"optimizations": "none"},
        {"optimizations": "lion"},
        {},
    ]
    assert [found.is_placebo(level) for level in found.levels] == [False, False, True]


def test_values_are_texts_of_an_override() -> None:
    assert factor("model.bias", [True, None, 0.5, 3, "x"]).levels == ("true", "null", "0.5", "3", "x")


def test_a_mapping_names_levels_which_change_one_key_or_several() -> None:
    found = factor("shape", {"wide": {"model.n_layer": 2, "model.n_embd": 64}, "deep": {"model.n_layer": 8}})
    assert found.levels == ("wide", "deep")
    assert found.at("wide") == {"model.n_layer": "2", "model.n_embd": "64"}
    assert factor("training.batch_size", {"small": 4}).at("small") == {"training.batch_size": "4"}


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (3, "give a list of its levels"),
        ([[1, [2]]], "a list as a level has plain values"),
        ([{"a": 1}], "placebo: LABEL"),
        ({"wide": {"model.n_layer": {"a": 2}}}, "give one value"),
    ],
)
def test_a_value_that_is_no_level_is_a_sentence(written: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        factor("key", written)


def test_optimizations_are_stacked_and_other_keys_are_changed_once() -> None:
    assert merge_changes(
        [{"optimizations": "none"}, {"optimizations": "lion"}, {"a": "1"}, {"optimizations": "compile"}]
    ) == {
        "optimizations": "lion+compile",
        "a": "1",
    }
    assert merge_changes([{"optimizations": "none"}, {}]) == {"optimizations": "none"}
    with pytest.raises(ValueError, match="two factors change a"):
        merge_changes([{"a": "1"}, {"a": "2"}])


def test_a_level_that_is_not_named_is_a_value_of_the_key() -> None:
    assert Factor("training.steps", ("5",)).at("5") == {"training.steps": "5"}


def test_a_level_may_be_a_list() -> None:
    cores = factor("cores", [[0], [0, 1], None])
    assert cores.levels == ("[0]", "[0,1]", "null")
    assert load("demo", [f"cores={cores.levels[1]}"]).cores == (0, 1)
    assert factor("optimizations", [[], ["sdpa_attention", "lion"]]).levels == ("none", "sdpa_attention+lion")
    both = factor("machine", {"two": {"cores": [0, 1], "optimizations": ["lion"]}})
    assert both.at("two") == {"cores": "[0,1]", "optimizations": "lion"}
