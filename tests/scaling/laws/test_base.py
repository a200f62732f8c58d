"""The folder is the registry, and a folder of the user's own adds to it."""

from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.scaling.laws import HOFFMANN, form_named, forms

OWN = """
from dataclasses import replace
from assay.scaling.laws import HOFFMANN
MINE = replace(HOFFMANN, name="mine")
"""


def extended(place: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place / "scaling"
    folder.mkdir()
    (folder / "own_law.py").write_text(text, encoding="utf-8")
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(place))


def test_a_file_of_the_users_adds_a_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(iter(forms())) == "hoffmann"
    extended(tmp_path, OWN, monkeypatch)
    assert form_named("mine").formula == HOFFMANN.formula
    assert form_named("hoffmann") is HOFFMANN


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "defines no law; define an assay.scaling.laws.Form"),
        (OWN.replace('"mine"', '"kaplan-size"'), "defines the law 'kaplan-size', which exists"),
    ],
)
def test_a_faulty_file_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    extended(tmp_path, text, monkeypatch)
    with pytest.raises(UsageError, match=says):
        forms()


def test_an_unknown_law_lists_the_known() -> None:
    with pytest.raises(UsageError, match="no law 'newton'; there are hoffmann, kaplan-size"):
        form_named("newton")
