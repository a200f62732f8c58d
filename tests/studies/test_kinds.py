"""Which rows each kind of study has."""

from pathlib import Path
from typing import Any

import pytest

from assay.config import Run, load
from assay.errors import UsageError
from assay.records.study import BASELINE
from assay.studies.design import Treatment
from assay.studies.kinds import kinds
from assay.studies.kinds.comparison import usual
from assay.studies.reading import read_study
from assay.studies.schema import template

BASE = load("demo")
TWO = {"training.learning_rate": ["1e-3", "3e-4"], "model.bias": [True, False], "optimizations": ["none", "lion"]}


def rows(kind: str, **fields: Any) -> tuple[Treatment, ...]:
    return kinds()[kind].model_validate(fields, strict=False).rows(BASE)


def labels(kind: str, **fields: Any) -> list[str]:
    return [row.label for row in rows(kind, **fields)]


def test_one_at_a_time_changes_one_level_of_the_control() -> None:
    assert labels("one_at_a_time", vary=TWO) == [BASELINE, "training.learning_rate=3e-4", "model.bias=false", "lion"]
    run = rows("one_at_a_time", vary=TWO)[1].run
    assert (run.training.learning_rate, run.model.bias, run.optimizations) == (3e-4, True, ())


def test_a_ladder_climbs_and_leaves_out_and_adds_alone() -> None:
    rungs = ["sdpa_attention", "training.batch_size=16 model.bias=false", "lion"]
    assert labels("ladder", rungs=rungs) == [
        BASELINE,
        "sdpa_attention",
        "sdpa_attention + training.batch_size=16 model.bias=false",
        "sdpa_attention + training.batch_size=16 model.bias=false + lion",
    ]
    whole = rows("ladder", rungs=rungs, leave_one_out=True, add_one=True)
    assert [row.label for row in whole[4:]] == [
        "training.batch_size=16 model.bias=false + lion",
        "sdpa_attention + lion",
        "training.batch_size=16 model.bias=false",
        "lion",
    ]
    top = whole[3].run
    assert [one.name for one in top.optimizations] == ["sdpa_attention", "lion"]
    assert (top.training.batch_size, top.model.bias) == (16, False)


def test_named_levels_change_several_keys() -> None:
    shapes = {"wide": {"model.n_layer": 2, "model.n_embd": 64}, "deep": {"model.n_layer": 6, "model.n_embd": 32}}
    control, deep = rows("factorial", vary={"shape": shapes})
    assert (control.run.model.n_layer, deep.run.model.n_layer, deep.run.model.n_embd) == (2, 6, 32)
    assert (deep.label, deep.levels) == ("shape=deep", {"shape": "deep"})


def test_a_placebo_runs_the_control_under_a_label_of_its_own() -> None:
    control, placebo = rows("factorial", vary={"optimizations": ["none", {"placebo": "gradient scaler"}]})
    assert placebo.run == control.run
    assert placebo.label == "placebo: gradient scaler"


def test_excluded_combinations_are_no_rows() -> None:
    vary = {"training.batch_size": [4, 8, 16], "optimizations": ["none", "lion"]}
    found = labels("factorial", vary=vary, exclude=[{"training.batch_size": 16, "optimizations": "lion"}])
    assert len(found) == 5
    assert "training.batch_size=16, optimizations=lion" not in found


def test_a_fraction_has_each_level_equally_often_and_tells_what_it_mixes_up() -> None:
    study = kinds()["fractional"].model_validate({"vary": TWO, "size": 4})
    found = study.rows(BASE)
    assert found[0].levels == {key: str(one[0]).lower() for key, one in TWO.items()}
    for key in TWO:
        levels = [row.levels[key] for row in found]
        assert sorted(levels.count(level) for level in set(levels)) == [2, 2]
    assert study.notes() == (
        "4 of 8 combinations, resolution III.",
        "Cannot be told apart: training.learning_rate = model.bias × optimizations.",
        "Cannot be told apart: model.bias = training.learning_rate × optimizations.",
        "Cannot be told apart: optimizations = training.learning_rate × model.bias.",
    )
    full = kinds()["fractional"].model_validate({"vary": TWO, "size": 8})
    assert len(full.rows(BASE)) == 8
    assert full.notes() == ("Every combination of levels is a row: all effects can be told apart.",)


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        ("factorial", "vary: {optimizations: lion}", "vary: optimizations has 'lion'; give a list"),
        ("factorial", "vary: {a: [1]}\nexclude: {a: 1}", "exclude: it should be a list of mappings"),
        ("factorial", "vary: {a: [1, 2]}\nexclude: [{b: 1}]", "exclude names b, which is no factor"),
        ("factorial", "vary: {a: [1, 2]}\nexclude: [{a: 3}]", "exclude names a=3, which is no level"),
        ("factorial", "vary: {a: [1, 2]}\nexclude: [{a: 1}]", "exclude leaves out the control"),
        ("fractional", "vary: {a: [1, 2, 3]}\nsize: 2", "two levels of each factor, and a has 3"),
        ("fractional", "vary: {a: [1, 2], b: [1, 2]}\nsize: 3", "give a power of two from 2 to 4"),
        ("fractional", "vary: {a: [1, 2], b: [1, 2]}\nsize: 8", "give a power of two from 2 to 4"),
        ("fractional", "vary: {a: [1, 2], b: [1, 2]}\nsize: 2", "2 rows are too few for 2 factors"),
        ("fractional", "vary: {a: [1, 2], b: [1, 2]}\nsize: 4\nexclude: [{a: 2}]", "has no exclude"),
        ("ladder", "rungs: []", "rungs: "),
        ("ladder", "rungs: [lion, lion]", "the rung 'lion' is listed twice"),
    ],
)
def test_a_faulty_design_is_one_sentence(tmp_path: Path, kind: str, fields: str, says: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(f"kind: {kind}\n{fields}\n")
    with pytest.raises(UsageError, match=says) as caught:
        read_study(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", list(kinds()))
def test_the_template_of_a_kind_is_a_study_of_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(template(path, kinds()[kind]))
    study = read_study(path)
    assert study.kind == kind
    assert len(study.rows(BASE)) > 1
    assert all(f"{name}:" in path.read_text() for name in type(study).model_fields)


@pytest.mark.parametrize(
    ("base", "names"),
    [
        (BASE, ("sdpa_attention", "bf16_mixed", "activation_checkpointing")),
        (load("demo", ["model.dropout=0.1"]), ("bf16_mixed", "activation_checkpointing", "fused_adamw")),
        (load("demo", ["ranks=2"]), ()),
        (BASE.model_copy(update={"optimizations": rows("comparison", treatments=["lion"])[1].run.optimizations}), ()),
    ],
    ids=["demo", "dropout, which fused attention on a CPU excludes", "two ranks", "a baseline with techniques"],
)
def test_a_comparison_without_names_has_those_that_apply(base: Run, names: tuple[str, ...]) -> None:
    told = list[str]()
    found = usual(base.model_copy(update={"device": "cpu"}), lambda text, _: told.append(text))
    assert found == names
    assert told == ([f"No technique was named, so these are compared: {', '.join(names)}."] if names else [])
