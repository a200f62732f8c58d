"""Which files a path has, and which splits their names tell."""

from pathlib import Path

import pytest

from assay.config import DataConfig, Home
from assay.data import prepare
from assay.data.compressed import RECORD_FORMS
from assay.data.corpora import Tally, files_by_split
from assay.data.documents import FileDocuments
from assay.data.records import _READERS

CARD = "---\ndataset_info: {}\n---\n# A data set\n"


def folder(place: Path, *names: str) -> Path:
    """A folder with files whose record or text is their name."""
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(CARD if name.startswith("README") else f'{{"text": "{name}"}}\n')
    return place


def splits(place: Path) -> tuple[dict[str, list[str]], list[tuple[str, int]]]:
    tally = Tally()
    found = files_by_split(str(place), tally)
    names = {split: [one.relative_to(place).as_posix() for one in files] for split, files in found.items() if split}
    return names, [(remark.reason, remark.count) for remark in tally.remarks()]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (
            ("data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl", "data/test-00000-of-00001.jsonl"),
            {"train": 2, "test": 1},
        ),
        (("train.jsonl", "valid.jsonl", "eval.jsonl"), {"train": 1, "validation": 1, "test": 1}),
        (("train/a.jsonl", "train/b.jsonl", "dev/a.jsonl"), {"train": 2, "validation": 1}),
        (("my_train_file.jsonl.gz", "my_validation_file.jsonl.gz"), {"train": 1, "validation": 1}),
        (("README.md", "LICENSE", "old.py", "train.jsonl"), {"train": 1}),
        (("README.md", "part-0.jsonl", "part-1.jsonl"), {"train": 2}),
    ],
)
def test_names_of_files_and_folders_tell_splits(tmp_path: Path, names: tuple[str, ...], found: dict[str, int]) -> None:
    assert {split: len(files) for split, files in splits(folder(tmp_path, *names))[0].items()} == found


@pytest.mark.parametrize(
    "names",
    [
        ("train.jsonl",),
        ("test.jsonl", "valid.jsonl"),
        ("training_data_a.txt", "test.txt"),
        ("train.jsonl", "test.jsonl", "book.txt"),
        ("train.jsonl", "test.jsonl", "package.json"),
        ("constrained.jsonl", "latest.jsonl"),
        ("README.md", "train.py", "test.py"),
    ],
)
def test_other_folders_have_none(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert splits(folder(tmp_path, *names)) == ({}, [])


def test_every_form_of_records_has_a_reader() -> None:
    assert _READERS.keys() == RECORD_FORMS


def test_a_clone_of_the_hub_is_trained_on_its_training_split_alone(home: Home, tmp_path: Path) -> None:
    place = folder(tmp_path / "clone", "README.md", ".gitattributes", "data/train-0.jsonl", "data/test-0.jsonl")
    found = prepare(DataConfig(path=str(place), tokenizer="char"), home)
    text = "".join(found.tokenizer.decode(shard.ids) for shard in (found.train, found.validation))
    assert text == "data/train-0.jsonl"
    assert [(one.reason, one.count) for one in found.manifest.remarks] == [
        ("hidden", 1),
        ("metadata of a data set and no text", 1),
        ("of a split that is not read", 1),
    ]
    streamed = FileDocuments(str(place), DataConfig())
    assert list(streamed(0)) == ["data/train-0.jsonl"]
    assert {one.reason for one in streamed.remarks()} == {one.reason for one in found.manifest.remarks}
