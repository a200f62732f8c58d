"""Documents out of files and data sets: from any on, alike from both, and refused early where they can be."""

import json
from pathlib import Path

import pyarrow as arrow
import pytest
from pyarrow import parquet

from assay.config import DataConfig
from assay.data.documents import DatasetDocuments, FileDocuments, check_dataset, check_files, is_local
from assay.errors import UsageError

TEXTS = [f"document {n}" for n in range(17)]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The library, which needs no hub for folders."""
    pytest.importorskip("datasets")
    return monkeypatch


def lines(place: Path, records: list[object]) -> str:
    place.parent.mkdir(exist_ok=True)
    place.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(place)


def test_files_and_data_sets_give_their_documents_from_any_on(tmp_path: Path, hub: pytest.MonkeyPatch) -> None:
    records = tmp_path / "records"
    path = lines(records / "a.jsonl", [{"text": text} for text in TEXTS])
    for read in (FileDocuments(path, DataConfig()), DatasetDocuments(str(records), "train", "text")):
        assert list(read(0)) == TEXTS
        assert list(read(15)) == TEXTS[15:]


@pytest.mark.parametrize("nulls", [{0}, {1}, {2}])
def test_a_null_holds_nothing_in_data_sets_as_in_parquet(
    tmp_path: Path, hub: pytest.MonkeyPatch, nulls: set[int]
) -> None:
    texts = [None if n in nulls else text for n, text in enumerate(TEXTS[:3])]
    folder = tmp_path / "records"
    lines(folder / "a.jsonl", [{"text": text} for text in texts])
    parquet.write_table(arrow.table({"text": texts}), tmp_path / "a.parquet")
    read = DatasetDocuments(str(folder), "train", "text")
    assert list(read(0)) == [text or "" for text in texts]
    assert list(read(2)) == [texts[2] or ""]
    assert [t for t in read(0) if t] == list(FileDocuments(str(tmp_path / "a.parquet"), DataConfig())(0))


def test_a_data_set_that_cannot_be_read_is_refused_with_a_sentence(tmp_path: Path, hub: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "records"
    lines(folder / "a.jsonl", [{"text": "one", "n": 1}])
    for name, split, field, says in (
        (folder, "train", "body", r"lacks the text field 'body' \(it has text, n\); set data.text_field"),
        (folder, "train", "n", "the field 'n' is not text"),
        (folder, "nothing", "text", "cannot be streamed: .*nothing"),
        (tmp_path / "nowhere", "train", "text", "nowhere cannot be streamed"),
    ):
        with pytest.raises(UsageError, match=says):
            check_dataset(str(name), split, field)
    check_dataset(str(folder), "train", "text")
    lines(folder / "a.jsonl", [{"text": None}, {"text": " "}])
    with pytest.raises(UsageError, match="contains no text to stream"):
        check_dataset(str(folder), "train", "text")


def test_files_without_text_are_refused_before_they_are_streamed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in (("a.txt", b""), ("b.txt", b"\n"), ("c.bin", b"\xff\x00")):
        (folder / name).write_bytes(content)
    empty = lines(tmp_path / "empty.jsonl", [])
    for path in (folder, empty, folder / "a.txt", f"{folder}/*.txt"):
        with pytest.raises(UsageError, match="contains no text to stream"):
            check_files(str(path), DataConfig())
    for path in (folder / "c.bin", f"{folder}/*.bin"):
        with pytest.raises(UsageError, match=r"c\.bin is not text: it contains NUL bytes"):
            check_files(str(path), DataConfig())
    (folder / "d.txt").write_text("text")
    check_files(str(folder), DataConfig())
    assert [text for text in FileDocuments(str(folder), DataConfig())(0) if text.strip()] == ["text"]


def test_parts_that_are_left_out_are_counted_once_as_far_as_files_were_read(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    lines(folder / "a.jsonl", [{"text": "one"}, {"text": None}, {"text": "two"}, {"text": None}])
    (folder / "b.bin").write_bytes(b"\xff\x00")
    (folder / "c.txt").write_text("three")
    (folder / ".hidden").write_text("four")
    read = FileDocuments(str(folder), DataConfig())
    counts = lambda: {remark.reason: remark.count for remark in read.remarks()}  # noqa: E731
    assert counts() == {"hidden": 1}
    assert next(read(0)) == "one"
    assert counts() == {"hidden": 1}
    for start in (0, 2, 0):
        assert list(read(start)) == ["one", "two", "three"][start:]
        assert counts() == {"hidden": 1, "null and no text": 2, "with NUL bytes, so no text": 1}
    next(read(0))  # a pass that has just begun does not hide what the last one met
    assert len(counts()) == 3
    assert {remark.reason for remark in FileDocuments(str(folder), DataConfig()).glance()} == {
        "hidden",
        "with NUL bytes, so no text",
    }


def test_nulls_of_a_data_set_are_counted_once_from_its_first_record_on(tmp_path: Path, hub: pytest.MonkeyPatch) -> None:
    lines(tmp_path / "records" / "a.jsonl", [{"text": None if n % 5 == 1 else text} for n, text in enumerate(TEXTS)])
    read = DatasetDocuments(str(tmp_path / "records"), "train", "text")
    assert read.remarks() == ()
    next(read(3))  # as a run that goes on with the fourth document
    assert [(one.count, one.reason) for one in read.remarks()] == [(1, "null and no text")]
    for start in (0, 15, 0):
        list(read(start))
        (said,) = read.remarks()
        assert (said.count, said.what, said.first) == (4, "record", f"{tmp_path / 'records'}, record 2")


def test_a_plan_reads_the_first_records_only(tmp_path: Path, hub: pytest.MonkeyPatch) -> None:
    hub.setattr("assay.data.documents._GLANCE_DOCUMENTS", 4)
    path = lines(tmp_path / "records" / "a.jsonl", [{"text": None if n % 2 else text} for n, text in enumerate(TEXTS)])
    for read in (FileDocuments(path, DataConfig()), DatasetDocuments(str(tmp_path / "records"), "train", "text")):
        (said,) = read.glance_at_records()
        assert said.reason == "null and no text, among the first 4 documents"
    assert DatasetDocuments("some/thing", "train", "text").glance_at_records() == ()


def test_splits_that_are_not_streamed_are_named(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    one = datasets.Dataset.from_dict({"text": ["one", "two"]})
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(tmp_path / "saved")
    read = FileDocuments(str(tmp_path / "saved"), DataConfig())
    assert list(read(0)) == ["one", "two"]
    (split,) = [remark for remark in read.remarks() if remark.reason == "of a split that is not read"]
    assert split.first.endswith("test/data-00000-of-00001.arrow")


@pytest.mark.parametrize(
    ("name", "local"), [("imdb", False), ("some/thing", False), ("/nowhere", True), ("./a/b", True)]
)
def test_names_of_the_hub_are_told_from_folders(name: str, local: bool) -> None:
    assert is_local(name) is local


class Hub:
    """It answers every question with one error, and counts."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.asked = error, 0

    def __call__(self, **_: object) -> "Hub":
        return self

    def dataset_info(self, name: str, timeout: float) -> None:
        self.asked += 1
        if self.error is not None:
            raise self.error


def test_the_hub_is_asked_once_for_a_name_and_not_where_it_is_to_be_left_alone(hub: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import HFValidationError

    for error, says in (
        (HFValidationError("a:b"), "no data set of that name on the hub"),
        (ConnectionError("Name or service not known\nand more"), r"cannot be reached .* \(Name or service not known\)"),
    ):
        asked = Hub(error)
        hub.setattr("huggingface_hub.HfApi", asked)
        hub.setattr("datasets.config.HF_HUB_OFFLINE", False)
        for ask in (
            lambda: check_dataset("some/thing", "train", "text"),
            lambda: next(DatasetDocuments("some/thing", "train", "text")(0)),
        ):
            asked.asked = 0
            with pytest.raises(UsageError, match=says):
                ask()
            assert asked.asked == 1
        hub.setattr("datasets.config.HF_HUB_OFFLINE", True)
        check_dataset("some/thing", "train", "text")
        assert asked.asked == 1
