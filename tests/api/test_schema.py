"""Published schemas: their versions, and records of today's and earlier versions that satisfy them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from assay.api.runs import import_archive
from assay.api.schema import DIALECT, SCHEMAS, schema
from assay.api.study import show
from assay.config import Home
from assay.errors import UsageError
from assay.report import view
from assay.units import json_text
from support.docs import DOCS
from support.schemas import faults, validator

OLD = Path(__file__).parents[1] / "support" / "old_home"
ARCHIVES = sorted(DOCS.glob("studies/*/study.tar.xz"), key=lambda path: path.stat().st_size)
FILES = {"result.json": "run", "run.json": "run-start", "comparison.json": "comparison", "study.json": "study-plan"}
DIGESTS = {
    "run 1": "081b22f00d68",
    "run-start 1": "b0c14cd9802f",
    "comparison 3": "30eeacc05257",
    "study-plan 3": "5db986e527e8",
    "answer 1": "3dfed9e568af",
    "estimate 2": "73bf3fb118c3",
    "recommend 1": "be4910768516",
    "capacity 1": "b09c7930da98",
    "plan 2": "e3819380cca9",
    "inference 1": "797e05cc7bc4",
    "cost 1": "86f9cf49d8d8",
    "measure 1": "360de8367911",
    "machine 1": "44950a901111",
    "anatomy 1": "6065098a230a",
    "mesh 1": "bd0fc0934c49",
    "doctor 1": "eaede281ae85",
    "gradients 1": "6c15b33d6dc2",
    "study 2": "c5e92eafae9d",
}
"""Digest of each schema without its texts, by name and version. A schema that changes gets a new version and line."""


def without_texts(value: Any) -> Any:
    """A schema without what changes no meaning; keys named `title` or `description` are themselves schemas."""
    if isinstance(value, list):
        return [without_texts(one) for one in value]
    if not isinstance(value, dict):
        return value
    plain = {key: one for key, one in value.items() if not (key in ("title", "description") and isinstance(one, str))}
    return {key: without_texts(one) for key, one in plain.items()}


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(without_texts(value), sort_keys=True).encode()).hexdigest()[:12]


def current() -> dict[str, str]:
    return {f"{name} {one.version}": digest(one.plain()) for name, one in SCHEMAS.items()}


def test_a_schema_changes_only_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_EXTENSIONS", raising=False)
    assert current() == DIGESTS, "raise the version of a schema that changed, and write its new digest here"


def test_a_digest_follows_keys_and_types_but_not_texts() -> None:
    plain = schema("doctor").plain()
    renamed = json.loads(json.dumps(plain).replace("The consequence for assay.", "A consequence."))
    assert renamed != plain
    assert digest(renamed) == digest(plain)
    assert digest(json.loads(json.dumps(plain).replace('"remedy"', '"cure"'))) != digest(plain)


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_is_a_schema_with_its_name_and_version(name: str) -> None:
    plain = validator(name).schema
    assert (plain["$schema"], plain["$id"]) == (DIALECT, f"urn:assay:schema:{name}:{SCHEMAS[name].version}")
    assert plain["title"] == SCHEMAS[name].title


def test_keys_have_the_texts_of_their_fields() -> None:
    properties = validator("run").schema["properties"]
    assert properties["train_loss"]["description"] == "Loss of the last step, averaged over its tokens."
    assert "title" not in properties["train_loss"]
    assert validator("answer").schema["$defs"]["RowJson"]["properties"]["label"]["description"]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no schema 'runn'; did you mean 'run'"):
        schema("runn")


def test_records_of_an_old_home_satisfy_them() -> None:
    found = [path for name in FILES for path in sorted(OLD.rglob(name))]
    assert len(found) == 11
    assert {path: wrong for path in found if (wrong := faults(FILES[path.name], read(path)))} == {}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def satisfied(archive: Path, home: Home) -> None:
    (name,) = import_archive(archive, home=home).new
    for file in (home.root / name).glob("*.json"):
        assert faults(FILES[file.name], read(file)) == []
    answer = json.loads(json_text(view(show(name.removeprefix("reports/"), home)).values()))
    assert faults("answer", answer) == []
    answer["rows"][0]["more"] = answer["rows"][0].pop("label")
    assert len(faults("answer", answer)) == 2


def test_the_smallest_study_satisfies_them(tmp_path: Path) -> None:
    satisfied(ARCHIVES[0], Home(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("archive", ARCHIVES[1:], ids=lambda path: str(path.parent.name))
def test_every_study_satisfies_them(archive: Path, tmp_path: Path) -> None:
    satisfied(archive, Home(tmp_path))


def test_keys_and_types_that_no_record_has_are_refused() -> None:
    result = read(next(OLD.rglob("result.json")))
    assert faults("run", {**result, "speed": 1.0}) == [
        "$: Additional properties are not allowed ('speed' was unexpected)"
    ]
    assert faults("run", {**result, "steps": "many"}) == ["$.steps: 'many' is not of type 'integer'"]
    assert faults("run", {key: one for key, one in result.items() if key != "config"}) != []


def test_numbers_that_json_cannot_write_have_their_values() -> None:
    result = read(next(OLD.rglob("result.json")))
    assert faults("run", {**result, "train_loss": None}) == []
    assert faults("run", {**result, "train_loss": "Infinity"}) != []
    assert faults("run", {**result, "values": {"loss_error": "Infinity"}}) == []
    assert faults("run", {**result, "values": {"loss_error": "large"}}) != []
