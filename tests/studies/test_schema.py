"""The schema of a study's file: what the library and new files have satisfies it, and wrong keys do not."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.errors import UsageError
from assay.studies.kinds import kinds
from assay.studies.library import find_study_file, names
from assay.studies.reading import FULL, read_study, scales
from assay.studies.schema import template
from support.schemas import faults

EXAMPLE = """\
kind: factorial
vary:
  training.learning_rate: [1e-3, 3e-4]
  optimizations: [none, [sdpa_attention, lion], {placebo: nothing}]
  size: {small: {model.n_layer: 2, model.n_embd: 64}, large: {model.n_layer: 4}}
  data.corpus: {role: context, levels: [stdlib, wikitext-2]}
exclude: [{training.learning_rate: "<= 3e-4", size: large}]
seeds: [1, 2]
expects: [{effect: {size: large}, metric: step_seconds, change: higher, size: 0.1}]
published: {library: fahey}
loss_margin: 1e-2
scales: {small: {seeds: 1, overrides: [training.steps=10], vary: {optimizations: [none, lion]}}}
"""


def read(text: str) -> Any:
    return json.loads(json.dumps(yaml.safe_load(text)))


def wrong(text: str) -> list[str]:
    return faults("study", read(text))


def test_every_study_of_the_library_satisfies_it() -> None:
    texts = {name: find_study_file(name).read_text(encoding="utf-8") for name in names()}
    assert len(texts) >= 20
    assert {name: found for name, text in texts.items() if (found := wrong(text))} == {}


@pytest.mark.parametrize("kind", kinds())
def test_a_new_file_of_each_kind_satisfies_it(kind: str, tmp_path: Path) -> None:
    assert wrong(template(tmp_path / "new.yaml", kinds()[kind])) == []


def test_each_form_of_a_key_that_a_file_may_have_satisfies_it(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(EXAMPLE)
    assert [read_study(path, scale).kind for scale in scales(path)] == ["factorial"] * 2
    assert scales(path)[0] == FULL
    assert wrong(EXAMPLE) == []


@pytest.mark.parametrize(
    ("right", "instead"),
    [
        ("kind: factorial", "kind: facturial"),
        ("seeds:", "sedes:"),
        ("seeds: [1, 2]", "seeds: many"),
        ("change: higher", "change: more"),
        ("role: context", "role: chosen"),
        ("library: fahey", "library: fahay"),
        ("loss_margin: 1e-2", "loss_margin: small"),
        ("{seeds: 1,", "{sedes: 1,"),
        ("exclude: [", "exclude: [1, "),
        ("kind: factorial\n", ""),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_it_and_by_its_reader(right: str, instead: str, tmp_path: Path) -> None:
    text = EXAMPLE.replace(right, instead)
    assert text != EXAMPLE
    path = tmp_path / "study.yaml"
    path.write_text(text)
    assert wrong(text) != []
    with pytest.raises(UsageError):
        [read_study(path, scale) for scale in scales(path)]


def test_a_kind_of_a_users_own_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.studies.schema import study_schema

    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path))
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "ends.py").write_text(
        "from typing import ClassVar\nfrom assay.studies.base import Study\n\n\nclass Ends(Study):\n"
        '    kind: ClassVar[str] = "ends"\n    rates: tuple[str, ...]\n    """Rates to try."""\n'
        "    def factors(self): ...\n    def combinations(self): ...\n"
    )
    found = study_schema()
    assert "ends" in found["properties"]["kind"]["enum"]
    assert found["$defs"]["ends"]["properties"]["rates"]["description"] == "Rates to try."
