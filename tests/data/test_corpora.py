"""Which text a configuration means, and where it is cut."""

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.config import DataConfig, Home
from assay.data.corpora import list_corpus, stamp
from assay.data.sources import Corpus, read_corpus
from assay.errors import UsageError


def corpus_of(config: DataConfig, home: Home) -> Corpus:
    return read_corpus(list_corpus(config, home), config, home)


def test_the_standard_library_is_the_same_text_each_time_without_tests(home: Home) -> None:
    config = DataConfig(max_bytes=200_000)
    listing = list_corpus(config, home)
    assert listing.train == list_corpus(config, home).train
    parts = {part for path in listing.train for part in path.parts}
    assert not parts & {"test", "tests", "site-packages", "__pycache__"}
    assert {"argparse.py", "zipfile.py"} & {path.name for path in listing.train}
    corpus = corpus_of(config, home)
    assert len((corpus.train + corpus.validation).encode()) == 200_000
    assert corpus.sha256 == corpus_of(config, home).sha256


def test_the_last_part_of_the_characters_is_held_out(home: Home, tmp_path: Path) -> None:
    text = "é" * 600 + "x" * 401
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    corpus = corpus_of(DataConfig(path=str(tmp_path / "a.txt"), validation_fraction=0.25), home)
    assert (corpus.train, corpus.validation) == (text[:750], text[750:])


def test_a_folder_with_train_and_valid_brings_its_own_split(home: Home, tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text(f"{name} " * 10)
    corpus = corpus_of(DataConfig(path=str(tmp_path), max_bytes=12), home)
    assert (corpus.train, corpus.validation) == ("train train ", "valid valid ")


def test_a_part_of_the_held_out_text_is_evaluated_on(home: Home, tmp_path: Path) -> None:
    text = "a" * 90 + "bbbcccc"
    (tmp_path / "a.txt").write_text(text)

    def part(name: str) -> Corpus:
        fields = {"path": str(tmp_path / "a.txt"), "validation_fraction": 7 / 97, "evaluate_on": name}
        return corpus_of(DataConfig.model_validate(fields), home)

    assert (part("held-out").validation, part("held-out").unread) == ("bbbcccc", "")
    assert (part("validation").validation, part("validation").unread) == ("bbbc", "ccc")
    assert (part("test").validation, part("test").unread) == ("ccc", "bbbc")
    assert {part(name).train for name in ("held-out", "validation", "test")} == {"a" * 90}


def test_a_folder_may_have_a_test_split(home: Home, tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text(f"{name} " * 10)
    for name, file, other in (("test", "test", "valid"), ("validation", "valid", "test")):
        config = DataConfig.model_validate({"path": str(tmp_path), "max_bytes": 12, "evaluate_on": name})
        corpus = corpus_of(config, home)
        assert (corpus.train, corpus.validation, corpus.unread) == tuple(
            (f"{one} " * 3)[:12] for one in ("train", file, other)
        )


def test_an_empty_half_is_refused(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    config = DataConfig(path=str(tmp_path / "a.txt"), validation_fraction=0.1, evaluate_on="test")
    with pytest.raises(UsageError, match=r"the test split of .* has no text"):
        corpus_of(config, home)


def test_the_place_of_the_cut_is_part_of_the_hash() -> None:
    assert Corpus("", "ab", "c").sha256 != Corpus("", "a", "bc").sha256


@pytest.mark.parametrize("content", ["", "x"])
def test_too_little_text_is_refused(home: Home, tmp_path: Path, content: str) -> None:
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(UsageError, match="no text"):
        corpus_of(DataConfig(path=str(tmp_path / "a.txt")), home)


def test_an_unknown_corpus_names_what_was_meant(home: Home) -> None:
    with pytest.raises(UsageError, match="did you mean 'shakespeare'"):
        list_corpus(DataConfig(corpus="shakespear"), home)


def test_a_stamp_tells_a_touched_or_vanished_file(story: Path) -> None:
    before = stamp([story])
    assert stamp([story]) == before
    story.write_text("other")
    assert stamp([story]) != before
    story.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        stamp([story])


def test_shakespeare_is_cut_as_nanogpt_cuts_it(home: Home, shared: Callable[[str], Path]) -> None:
    content = shared("tinyshakespeare/input.txt").read_bytes()
    (home.cache / "shakespeare").mkdir()
    (home.cache / "shakespeare" / "input.txt").write_bytes(content)
    corpus = corpus_of(DataConfig(corpus="shakespeare"), home)
    assert (len(corpus.train), len(corpus.validation)) == (1_003_854, 111_540)
