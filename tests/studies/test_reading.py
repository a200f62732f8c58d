"""Scales of a study's file: which fields they replace, and which they add to."""

import re
from pathlib import Path

import pytest

from assay.api.designs import plan as api_plan
from assay.config import load
from assay.errors import UsageError
from assay.studies.factors import OPTIMIZATIONS
from assay.studies.kinds.factorial import Factorial
from assay.studies.library import find_study_file
from assay.studies.reading import read_study, scales

TEXT = """
kind: factorial
base: demo
overrides: [training.steps=100]
seeds: 3
vary:
  optimizations: [none, lion]
  training.batch_size: [8, 16]
scales:
  small:
    overrides: [training.steps=10]
    seeds: 1
    vary:
      training.batch_size: [4, 8, 16]
  empty: {}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    return path


def read(path: Path, scale: str, *overrides: str) -> Factorial:
    study = read_study(path, scale, overrides)
    assert isinstance(study, Factorial)
    return study


def test_a_scale_replaces_fields_appends_overrides_and_merges_mappings(file: Path) -> None:
    assert scales(file) == ["full", "small", "empty"]
    full, small = read(file, "full"), read(file, "small")
    assert (full.seeds, full.overrides, full.name) == (3, ("training.steps=100",), "mine")
    assert (small.seeds, small.name) == (1, "mine (small)")
    assert small.overrides == ("training.steps=100", "training.steps=10")
    assert small.vary["training.batch_size"].levels == ("4", "8", "16")
    assert small.vary[OPTIMIZATIONS] == full.vary[OPTIMIZATIONS]
    assert read(file, "empty").model_copy(update={"name": "mine"}) == full


def test_overrides_of_the_user_come_last(file: Path) -> None:
    assert read(file, "small", "training.steps=5").overrides[-1] == "training.steps=5"


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        ("smal", "has no scale 'smal'; did you mean 'small'"),
        ("zzz", "has no scale 'zzz'; there are full, small, empty"),
    ],
)
def test_an_unknown_scale_is_a_sentence(file: Path, scale: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_study(file, scale)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("scales: [small]", "scales should be a mapping"),
        ("scales: {small: 3}", "scales should be a mapping"),
        ("scales: {full: {}}", "scales has 'full'"),
        ("published: {library: fahy}", "published: the library has no document 'fahy'; did you mean 'fahey'"),
        ("published: {documnt: x}", "published.document: field required"),
    ],
)
def test_a_faulty_scale_or_document_is_a_sentence(file: Path, written: str, says: str) -> None:
    file.write_text(f"kind: comparison\ntreatments: [lion]\n{written}\n")
    with pytest.raises(UsageError, match=says):
        read_study(file)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("factorial", 'vary: {shape: {plain: {}, "de\\nep": {model.n_embd: 32}}}'),
        ("factorial", 'vary: {"sha\\e[31mpe": {plain: {}, deep: {model.n_embd: 32}}}'),
        ("factorial", 'vary: {optimizations: [none, {placebo: "\\u202egpj"}]}'),
        ("one_at_a_time", 'vary: {model.bias: [true, "fal\\nse"]}'),
        ("ladder", 'rungs: ["lion\\n"]'),
        ("random", 'trials: 1\nspace: {model.bias: [true, "fal\\nse"]}'),
        ("comparison", 'treatments: [lion]\nname: "a \\e[2J"'),
    ],
)
def test_a_name_that_a_table_cannot_show_is_a_sentence(file: Path, kind: str, field: str) -> None:
    file.write_text(f"kind: {kind}\n{field}\n")
    with pytest.raises(UsageError, match="should be one line of printable characters") as raised:
        read_study(file)
    assert str(raised.value).isprintable()


def test_a_question_over_several_lines_is_shown_in_one(file: Path) -> None:
    file.write_text("kind: comparison\ntreatments: [lion]\nquestion: |\n  Is Lion\n  faster?\n")
    assert read_study(file).question == "Is Lion faster?"


def test_a_field_that_a_scale_misspells_is_named(file: Path) -> None:
    file.write_text(TEXT.replace("seeds: 1", "sedes: 1"))
    read_study(file)
    with pytest.raises(UsageError, match="sedes"):
        read_study(file, "small")


def test_a_name_is_a_study_of_the_library_and_a_path_is_a_file(file: Path) -> None:
    assert find_study_file("cpu-fifteen").name == "cpu-fifteen.yaml"
    assert find_study_file(str(file)) == file
    with pytest.raises(UsageError, match="there is no study or file named 'cpu-fiften'; did you mean 'cpu-fifteen'"):
        find_study_file("cpu-fiften")
    assert find_study_file("not-there.yaml") == Path("not-there.yaml")


@pytest.mark.parametrize(
    ("change", "size", "refused"), [("lower", 1, True), ("lower", 0.9, False), ("higher", 5, False)]
)
def test_nothing_is_expected_to_get_lower_by_all_of_itself(
    tmp_path: Path, change: str, size: float, refused: bool
) -> None:
    row = f"{{row: 'optimizations=lion', metric: val_loss, change: {change}, size: {size}}}"
    path = written(tmp_path, FACTORIAL + f"expects: [{row}]")
    if not refused:
        assert read_study(path).expects[0].size == size
        return
    with pytest.raises(UsageError, match=r"nothing gets lower by 1 times itself; size is a fraction, such as 0\.05"):
        read_study(path)


def test_seeds_may_be_listed(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, FACTORIAL + "seeds: [1, 7, 42]"))
    assert study.seeds == 3
    cells = study.cells(load(study.base))
    assert list(dict.fromkeys(cell.seed for cell in cells)) == [1, 7, 42]
    assert {cell.run.seed for cell in cells} == {1, 7, 42}
    plain = read_study(written(tmp_path, FACTORIAL + "seeds: 2"))
    assert {cell.seed for cell in plain.cells(load("demo", ["seed=5"]))} == {5, 6}
    none = "is not possible; a study needs at least one seed"
    for seeds, says in (
        ("[1, 1]", "has a seed twice"),
        ("[-1]", "is no seed"),
        ("[]", f"seeds=0 {none}"),
        ("-3", f"seeds=-3 {none}"),
    ):
        with pytest.raises(UsageError, match=says):
            read_study(written(tmp_path, FACTORIAL + f"seeds: {seeds}")).cells(load("demo"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("sedes: 3", "there is no key 'sedes' in a study of the kind factorial; did you mean 'seeds'?"),
        ("sedes: 3\ncolour: red", "lacks these keys: 'sedes', did you mean 'seeds'? 'colour'"),
    ],
)
def test_keys_that_a_kind_does_not_have_are_named(tmp_path: Path, more: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read_study(written(tmp_path, FACTORIAL + more))


FACTORIAL = "kind: factorial\nbase: demo\nvary: {training.learning_rate: [1e-3, 2e-3]}\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def test_a_factor_is_context_by_its_role(tmp_path: Path) -> None:
    text = FACTORIAL.replace("{training", "{model.n_layer: {role: context, levels: [4, 2]}, training")
    study = read_study(written(tmp_path, text))
    assert study.context == ("model.n_layer",)
    assert next(factor.levels for factor in study.factors()) == ("4", "2")
    assert read_study(written(tmp_path, FACTORIAL)).context == ()


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ("{role: contxt, levels: [4, 2]}", "has the role 'contxt'; the one role is context"),
        ("{role: context}", "give its levels beside it"),
        ("{role: context, small: {}}", "give its levels beside it"),
    ],
)
def test_another_role_is_a_sentence(tmp_path: Path, levels: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read_study(written(tmp_path, f"kind: factorial\nvary: {{shape: {levels}, optimizations: [none, lion]}}\n"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("vary: {model.n_layer: {role: context, levels: [4, 2]}}", "every factor of the study is context"),
        ("vary: {model.n_layer: [4, 2]}\ncontext: [model.n_head]", "context names the factor 'model.n_head'"),
    ],
)
def test_context_leaves_something_to_choose(tmp_path: Path, more: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        api_plan(written(tmp_path, f"kind: factorial\n{more}\n"), home=tmp_path / "home")
