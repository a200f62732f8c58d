"""Conditions by which a study leaves rows out, in every kind that has them."""

from pathlib import Path
from typing import Any

import pytest

from assay.config import load
from assay.errors import UsageError
from assay.studies.kinds import kinds
from assay.studies.reading import read_study
from assay.studies.varied import Varied

DEPTHS = {"model.n_layer": ["2", "4", "8"], "training.batch_size": ["8", "16", "32"]}
SHAPES = {"shape": {"plain": {}, "deep": {"model.n_layer": 8}, "flat": {"model.n_layer": 2}}, **DEPTHS}
SPACE = {"training.learning_rate": {"low": 1e-4, "high": 1e-2}, "training.batch_size": ["8", "16", "32"]}


def combinations(kind: str, **fields: Any) -> list[dict[str, str]]:
    return [dict(one) for one in kinds()[kind].model_validate(fields, strict=False).combinations()]


def test_all_conditions_of_one_mapping_must_hold() -> None:
    found = combinations("factorial", vary=DEPTHS, exclude=[{"model.n_layer": ">= 4", "training.batch_size": "> 16"}])
    rows = [(one["model.n_layer"], one["training.batch_size"]) for one in found]
    assert len(rows) == 7
    assert not {("4", "32"), ("8", "32")} & set(rows)


def test_a_condition_may_stand_beside_a_level_and_any_mapping_excludes() -> None:
    exclude = [
        {"model.n_layer": "<4", "training.batch_size": 32},
        {"model.n_layer": "<= 8.0", "training.batch_size": 16},
    ]
    rows = combinations("factorial", vary=DEPTHS, exclude=exclude)
    assert [tuple(one.values()) for one in rows] == [("2", "8"), ("4", "8"), ("4", "32"), ("8", "8"), ("8", "32")]


def test_keys_that_named_levels_change_have_values_too() -> None:
    vary = {"shape": SHAPES["shape"], "training.batch_size": ["8", "32"]}
    rows = combinations("factorial", vary=vary, exclude=[{"model.n_layer": "> 4", "training.batch_size": "> 8"}])
    assert {tuple(one.values()) for one in rows} == {
        ("plain", "8"),
        ("plain", "32"),
        ("deep", "8"),
        ("flat", "8"),
        ("flat", "32"),
    }


def test_a_row_that_does_not_set_a_key_has_the_value_of_the_base() -> None:
    vary = {"shape": SHAPES["shape"], "training.batch_size": ["8", "32"]}
    exclude = [{"model.n_layer": "<= 4", "training.batch_size": "> 8"}]
    rows = combinations("factorial", vary=vary, exclude=exclude)
    assert [tuple(one.values()) for one in rows] == [
        ("plain", "8"),  # the demo has 3 or 4 layers
        ("deep", "8"),
        ("deep", "32"),
        ("flat", "8"),
    ]
    deeper = combinations("factorial", vary=vary, exclude=exclude, overrides=["model.n_layer=6"])
    assert ("plain", "32") in {tuple(one.values()) for one in deeper}
    known = kinds()["factorial"].model_validate({"vary": vary, "exclude": exclude}, strict=False)
    told = known.on(load("demo", ["model.n_layer=6"]))  # as with `start_from`
    assert ("plain", "32") in {tuple(one.values()) for one in told.combinations()}


def test_a_condition_may_name_what_an_override_sets() -> None:
    fields: dict[str, Any] = {"vary": DEPTHS, "exclude": [{"model.n_layer": ">= 4", "training.steps": ">= 100"}]}
    assert len(combinations("factorial", overrides=["training.steps=50"], **fields)) == 9
    assert len(combinations("factorial", overrides=["training.steps=100"], **fields)) == 3
    with pytest.raises(ValueError, match=r"training\.steps, which is no factor or override; there are model\.n_layer"):
        combinations("factorial", **fields)
    drawn = {"space": SPACE, "trials": 9, "exclude": [{"training.batch_size": "> 8", "model.n_layer": "> 4"}]}
    assert {one["training.batch_size"] for one in combinations("random", overrides=["model.n_layer=5"], **drawn)} == {
        "base",
        "8",
    }
    halved = {**drawn, "steps": [2, 4], "exclude": [{"training.steps": "> 2"}], "overrides": ["training.steps=9"]}
    with pytest.raises(ValueError, match="no factor or override"):
        combinations("successive_halving", **halved)


def test_a_constant_quantity_decides_its_setting() -> None:
    fields = {"vary": DEPTHS, "overrides": ["training.steps=100"], "constant": {"quantity": "tokens"}}
    with pytest.raises(ValueError, match="no factor or override"):
        combinations("factorial", exclude=[{"training.steps": "> 50"}], **fields)


def test_a_base_that_a_condition_leaves_out_is_refused() -> None:
    vary = {"shape": {"plain": {}, "deep": {"model.n_layer": 8}}}
    started = kinds()["factorial"].model_validate(
        {"vary": vary, "exclude": [{"model.n_layer": "< 3"}], "start_from": {"study": "other"}}, strict=False
    )
    with pytest.raises(UsageError, match=r"which has model\.n_layer < 3"):
        started.on(load("demo", ["model.n_layer=2"]))
    assert len(list(started.on(load("demo", ["model.n_layer=3"])).combinations())) == 2


def test_a_search_draws_excluded_rows_again() -> None:
    exclude = [{"training.learning_rate": "> 1e-3", "training.batch_size": ">= 16"}]
    rows = combinations("random", space=SPACE, trials=30, exclude=exclude)[1:]
    assert len(rows) == 30
    assert any(float(one["training.learning_rate"]) > 1e-3 for one in rows)
    assert all(one["training.batch_size"] == "8" for one in rows if float(one["training.learning_rate"]) > 1e-3)
    rungs = combinations("successive_halving", space=SPACE, trials=6, steps=[2, 4], exclude=exclude)[1:]
    assert {one["training.learning_rate"] for one in rungs} == {one["training.learning_rate"] for one in rows[:6]}


@pytest.mark.parametrize(
    ("kind", "exclude", "says"),
    [
        ("factorial", [{"training.batch_size": ">= 80"}], "training.batch_size >= 80"),
        ("factorial", [{"training.batch_size": ">= 16"}], None),
        ("factorial", [{"training.batch_size": ">= 16"}, {"model.n_layer": "> 8"}], "model.n_layer > 8"),
        ("one_at_a_time", [{"training.batch_size": 16, "model.n_layer": 8}], "training.batch_size=16, model.n_layer=8"),
        ("one_at_a_time", [{"training.batch_size": 16, "model.n_layer": 2}], None),
        ("factorial", [{"model.n_layer": f"> {depth}"} for depth in range(8, 16)], "model.n_layer > 13 and 2 others"),
    ],
)
def test_levels_that_no_row_has_are_named(kind: str, exclude: list[dict[str, Any]], says: str | None) -> None:
    found = kinds()[kind].model_validate({"vary": DEPTHS, "exclude": exclude}, strict=False)
    assert found.idle() == () if says is None else str(found.idle()[0]).endswith(f"{says}.")


def test_many_combinations_are_checked_against_one_control(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []
    values = Varied._values
    monkeypatch.setattr(Varied, "_values", lambda self, levels: counted.append(levels) or values(self, levels))
    for count in (1, 50):
        counted.clear()
        fields = {"vary": DEPTHS, "exclude": [{"model.n_layer": 8}] * count}
        kinds()["factorial"].model_validate(fields, strict=False)
        assert len(counted) == 1


@pytest.mark.parametrize(
    ("kind", "exclude", "says"),
    [
        ("factorial", "{model.n_layer: '>= many'}", "is no condition; write <, <=, > or >= and a number"),
        ("factorial", "{model.n_layer: '== 8'}", "is no condition"),
        ("factorial", "{model.n_layer: '>= nan'}", "is no condition"),
        ("factorial", "{model.depth: '>= 8'}", "exclude names model.depth, which is no factor"),
        ("factorial", "{training.schedule: '> 8'}", "compares training.schedule with a number, and none of its levels"),
        ("factorial", "{model.n_layer: '< 4'}", "exclude leaves out the control, which has model.n_layer < 4"),
        ("factorial", "{}", "it should be a list of mappings"),
        ("random", "{model.depth: '>= 8'}", "exclude names model.depth, which is no factor"),
        ("random", "{model.n_layer: 3}", "exclude names model.n_layer=3, which is no level of it"),
    ],
)
def test_a_wrong_condition_is_one_sentence(kind: str, exclude: str, says: str, tmp_path: Path) -> None:
    levels = "{model.n_layer: [2, 4, 8], training.schedule: [cosine, constant]}"
    field = f"vary: {levels}" if kind == "factorial" else f"space: {levels}\ntrials: 2"
    (tmp_path / "one.yaml").write_text(f"kind: {kind}\n{field}\nexclude: [{exclude}]\n")
    with pytest.raises(UsageError, match=says.replace("(", "\\(")) as raised:
        read_study(tmp_path / "one.yaml")
    assert "\n" not in str(raised.value)
