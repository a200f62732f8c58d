"""Rules that the sentences of every study's answer keep."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from assay.analysis.choose.answer import answers
from assay.analysis.comparison import Comparison, analyse
from assay.analysis.factors.layout import control_name, level_names
from assay.api.runs import import_archive
from assay.api.study import show
from assay.config import Home
from assay.report import view
from assay.report.study.view import StudyView
from support.docs import DOCS
from support.drawn_studies import drawn_study

ARCHIVES = sorted((DOCS / "studies").glob("*/study.tar.xz"), key=lambda file: file.stat().st_size)
FAST = 40
"""Drawn studies of every run of the tests."""
MOST_SENTENCES, MOST_WORDS, MOST_HEADLINE_WORDS, MOST_NUMBERS = 4, 30, 25, 2
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
BAD = re.compile(r"\w=\w|\bnan\b|\bNone\b(?! of \d)|\binf\b|  |\[[−\d]|\de[+-]?\d\d|[;,:] ?[.;,]|\bthe the\b|^\W*$")


def faults(study: StudyView) -> list[str]:
    """The rules that an answer breaks, each with its sentence."""
    found = [f"more than {MOST_SENTENCES}"] if len(study.sentences) > MOST_SENTENCES else []
    for place, sentence in enumerate(study.sentences):
        broken = {
            "words": len(re.findall(r"\w[^\s]*", sentence)) > (MOST_WORDS if place else MOST_HEADLINE_WORDS),
            "two sentences": ". " in sentence,
            "spelling": BAD.search(_without(sentence, _raw_names(study.comparison))) is not None,
            "no full stop": not sentence.endswith(".") or sentence.endswith(".."),
            "no capital": not _begins_well(sentence),
            "numbers": not place and len(numbers(study)) > MOST_NUMBERS,
        }
        found += [f"{rule}: {sentence}" for rule, is_broken in broken.items() if is_broken]
    return found


def numbers(study: StudyView) -> list[str]:
    """The numbers of a headline besides those in names of rows and levels, and of a target."""
    comparison, found = study.comparison, study.headline
    if found.startswith("The best learning rate"):
        return []  # its numbers are levels
    aims = [f"of {one.target.target:g}" for one in study.of(answers) if one.target is not None]
    levels = level_names(comparison.record).values()
    return NUMBER.findall(
        _without(found, [*comparison.names.values(), *levels, control_name(comparison.record), *aims])
    )


def _without(text: str, names: Iterable[str]) -> str:
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = text.replace(name, "_").replace(name[:1].upper() + name[1:], "_")
    return text


def _raw_names(comparison: Comparison) -> list[str]:
    """Names of rows that have no shorter one, since it would be another's."""
    return [row for row, name in comparison.names.items() if row == name and "=" in row]


def _begins_well(sentence: str) -> bool:
    first = sentence.split(" ", 1)[0].strip("“")
    return first[:1].isupper() or "_" in first or any(map(str.isdigit, first))


def archived(archive: Path, home: Home) -> StudyView:
    (study,) = import_archive(archive, home=home).new
    shown = view(show(study.removeprefix("reports/"), home))
    assert isinstance(shown, StudyView)
    return shown


def test_drawn_studies_keep_the_rules_and_have_every_kind_of_headline() -> None:
    studies = [StudyView(analyse(drawn_study(seed))) for seed in range(FAST)]
    assert [one for study in studies for one in faults(study)] == []
    said = " ".join(study.headline for study in studies)
    kinds = ("Turn on", "Choose", "Of 3 configurations", "best learning rate", "reaches a", "case", "Nothing is")
    for words in (*kinds, "dead switch"):
        assert words in said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FAST, 240))
def test_more_drawn_studies_keep_the_rules(seed: int) -> None:
    assert faults(StudyView(analyse(drawn_study(seed)))) == []


def test_the_smallest_archive_keeps_the_rules(tmp_path: Path) -> None:
    assert faults(archived(ARCHIVES[0], Home(tmp_path))) == []


@pytest.mark.slow
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda file: str(file.parent.name))
def test_archives_keep_the_rules(archive: Path, tmp_path: Path) -> None:
    study = archived(archive, Home(tmp_path))
    assert study.sentences
    assert faults(study) == []


def test_broken_rules_are_found() -> None:
    study = StudyView(analyse(drawn_study(0)))
    good = study.sentences
    bad = ("shape=large is it.", "it is 3 times  nan.", f"{'word ' * 31}.", "Fine [−3, 4].", "No stop")
    study.__dict__["sentences"] = (*good[:1], *bad)
    rules = {one.split(":")[0] for one in faults(study)}
    assert rules >= {"more than 4", "spelling", "words", "no full stop", "no capital"}
