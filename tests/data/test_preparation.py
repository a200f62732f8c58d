"""Prepared once, reused while the source stays; whole or not at all."""

import errno
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from assay import files as atomic
from assay.config import DataConfig, Home
from assay.data import preparation
from assay.data.preparation import folder_for, prepare
from assay.data.prepared_folder import open_prepared
from assay.errors import StorageError, UsageError


def folders(home: Home) -> list[str]:
    return sorted(path.name for path in home.data.iterdir())


def refuse_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*args: Any) -> None:
        pytest.fail("the source was read again")

    monkeypatch.setattr(preparation, "read_corpus", read)


def test_a_second_call_reads_no_source(home: Home, story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DataConfig(path=str(story))
    said: list[tuple[str, float | None]] = []
    first = prepare(config, home, lambda message, fraction: said.append((message, fraction)))
    assert ("tokenizing train", 1.0) in said
    refuse_reading(monkeypatch)
    second = prepare(config, home)
    assert (second.digest, second.notes) == (first.digest, ())
    assert folders(home) == [folder_for(config, home).name]


def test_each_configuration_has_its_folder(home: Home, story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = DataConfig(path=str(story))
    others = [base.model_copy(update=change) for change in ({"tokenizer": "char"}, {"validation_fraction": 0.2})]
    assert len({folder_for(config, home) for config in (base, *others)}) == 3
    monkeypatch.chdir(story.parent)
    assert folder_for(DataConfig(path=story.name), home) == folder_for(base, home)


def test_parts_of_the_held_out_text_share_training_text_and_vocabulary(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc" * 30 + "dddddeeeee")
    asked = [{"evaluate_on": name} for name in ("held-out", "validation", "test")]
    base = DataConfig(path=str(tmp_path / "a.txt"), tokenizer="char")
    every, validation, test = (prepare(base.model_copy(update=one), home) for one in asked)
    assert len({one.manifest.tokenizer_sha256 for one in (every, validation, test)}) == 1
    assert len({one.manifest.train.sha256 for one in (every, validation, test)}) == 1
    assert [*validation.validation.ids, *test.validation.ids] == [*every.validation.ids]


def test_a_folder_from_before_there_was_a_choice_keeps_its_name(home: Home) -> None:
    assert folder_for(DataConfig(path="/a.txt"), home).name == "files-byte-488b4343dcb0"


def test_a_changed_source_is_prepared_again_with_a_note(home: Home, story: Path) -> None:
    config = DataConfig(path=str(story))
    first = prepare(config, home)
    mapped = bytes(first.train.ids[:4].astype("u1"))
    story.write_text("Something else entirely.\n" * 100)
    said: list[str] = []
    second = prepare(config, home, lambda message, _: said.append(message))
    assert second.digest != first.digest
    assert "has changed since it was prepared" in second.notes[0]
    assert second.notes[0] in said
    assert bytes(first.train.ids[:4].astype("u1")) == mapped
    assert folders(home) == [folder_for(config, home).name]


def test_a_touched_source_is_compared_once(home: Home, story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DataConfig(path=str(story))
    first = prepare(config, home)
    os.utime(story, ns=(1, 1))
    second = prepare(config, home)
    assert (second.digest, second.notes) == (first.digest, ())
    refuse_reading(monkeypatch)
    prepare(config, home)


def test_the_digest_names_the_content_and_not_the_place(home: Home, story: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    shutil.copy(story, copy)
    first, second = (prepare(DataConfig(path=str(path)), home) for path in (story, copy))
    assert first.folder != second.folder
    assert first.digest == second.digest


def test_a_changed_tokenizer_file_is_noticed(home: Home, story: Path, tmp_path: Path) -> None:
    pairs = prepare(DataConfig(path=str(story), tokenizer="bpe", bpe_vocab_size=260), home)
    path = tmp_path / "mine.json"
    path.write_text(pairs.tokenizer.to_json())
    config = DataConfig(path=str(story), tokenizer=str(path))
    assert prepare(config, home).vocab_size == 260
    larger = prepare(DataConfig(path=str(story), tokenizer="bpe", bpe_vocab_size=280), home)
    path.write_text(larger.tokenizer.to_json())
    again = prepare(config, home)
    assert (again.vocab_size, len(again.notes)) == (280, 1)


def test_a_damaged_folder_is_refused_and_mended_thoroughly(home: Home, story: Path) -> None:
    config = DataConfig(path=str(story))
    first = prepare(config, home)
    (first.folder / "validation.bin").write_bytes(b"torn")
    with pytest.raises(UsageError, match=r"validation\.bin does not match its manifest"):
        prepare(config, home)
    mended = prepare(config, home, thorough=True)
    assert mended.digest == first.digest
    assert "it is prepared again" in mended.notes[0]
    open_prepared(mended.folder)


def test_a_folder_without_a_manifest_is_replaced(home: Home, story: Path) -> None:
    config = DataConfig(path=str(story))
    folder_for(config, home).mkdir()
    (folder_for(config, home) / "train.bin").write_bytes(b"half")
    assert len(open_prepared(prepare(config, home).folder).train) > len(b"half")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_is_named_and_leaves_nothing(
    home: Home, story: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match=os.strerror(code)):
        prepare(DataConfig(path=str(story)), home)
    assert folders(home) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_write_that_fails_half_way_leaves_nothing(home: Home, story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def full(self: Path, *args: Any, **keywords: Any) -> Any:
        return real(Path("/dev/full") if self.name == "validation.bin" else self, *args, **keywords)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StorageError, match="No space left on device"):
        prepare(DataConfig(path=str(story)), home)
    assert folders(home) == []


def test_an_interrupt_leaves_nothing(home: Home, story: Path) -> None:
    def stop(message: str, fraction: float | None) -> None:
        if fraction is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(DataConfig(path=str(story)), home, stop)
    assert folders(home) == []


def test_leftovers_of_a_crash_are_swept_after_a_day(home: Home, story: Path) -> None:
    for name, age in (("old", 2), ("young", 0)):
        (home.data / f".making-{name}").mkdir()
        (home.data / f".making-{name}-file").touch()
        for left in (f".making-{name}", f".making-{name}-file"):
            os.utime(home.data / left, times=(time.time() - age * 86400,) * 2)
    prepare(DataConfig(path=str(story)), home)
    assert sorted(one.name for one in home.data.glob(".*")) == [".making-young", ".making-young-file"]


def test_the_first_of_two_equal_results_stays(home: Home, story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = DataConfig(path=str(story))
    first = prepare(config, home)
    inode = (first.folder / "train.bin").stat().st_ino
    monkeypatch.setattr(preparation, "_found", lambda *args, **keywords: None)
    assert prepare(config, home).digest == first.digest
    assert (first.folder / "train.bin").stat().st_ino == inode
    assert folders(home) == [first.folder.name]


def _prepare_there(root: str, path: str, barrier: Any, results: Any) -> None:
    barrier.wait()
    results.put(prepare(DataConfig(path=path, tokenizer="char"), Home(root)).digest)


def test_processes_preparing_at_once_agree(home: Home, story: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(3), context.Queue()
    arguments = (str(home.root), str(story), barrier, results)
    workers = [context.Process(target=_prepare_there, args=arguments) for _ in range(3)]
    for worker in workers:
        worker.start()
    digests = {results.get(timeout=15) for _ in workers}
    for worker in workers:
        worker.join()
    assert len(digests) == 1
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(folders(home)) == 1


def test_a_folder_that_is_replaced_for_ever_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)) if ".making-" in self.name else FileNotFoundError

    monkeypatch.setattr(Path, "rename", rename)
    with (
        pytest.raises(StorageError, match="keep replacing it"),
        atomic.new_folder(tmp_path / "a", lambda _: False),
    ):
        pass


def test_wikitext_brings_its_own_split(home: Home, shared: Callable[[str], Path]) -> None:
    folder = shared("wikitext-2")
    prepared = prepare(DataConfig(path=str(folder), max_bytes=100_000), home)
    assert prepared.tokenizer.decode(prepared.validation.ids[:40]) == (folder / "valid.txt").read_text()[:40]
    assert len(prepared.train) <= 100_000


def _words(path: Path, *known: str) -> Path:
    vocabulary = {"[UNK]": 0, **{word: 2 + 2 * number for number, word in enumerate(known)}}
    library = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.save(str(path))
    return path


def test_a_tokenizer_that_cannot_spell_the_text_is_refused_from_a_stated_share_on(home: Home, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three\n" * 100)
    config = DataConfig(path=str(tmp_path / "a.txt"), tokenizer=str(_words(tmp_path / "t.json", "one", "two")))
    with pytest.raises(UsageError, match=r"cannot spell this text: 0\.333 of the tokens of train\.bin are unknown"):
        prepare(config, home)
    assert folders(home) == []
    taken = prepare(config.model_copy(update={"max_unknown": 0.4}), home)
    assert taken.vocab_size == 5
    assert max(taken.train.ids) < taken.vocab_size
    (remark,) = taken.manifest.remarks
    assert (remark.kind, remark.count) == ("unknown", 100)


def test_documents_that_are_left_out_are_in_the_manifest_and_named_when_it_is_read(home: Home, tmp_path: Path) -> None:
    books = tmp_path / "books"
    books.mkdir()
    for number in range(5):
        (books / f"{number}.txt").write_bytes("Fünf Bücher".encode("latin-1"))
    (books / "a.txt").write_text("five\n")
    said: list[str] = []
    (remark,) = prepare(DataConfig(path=str(books)), home, lambda message, _: said.append(message)).manifest.remarks
    assert (remark.kind, remark.count, remark.size_bytes) == ("left out", 5, 55)
    assert said.count(str(remark)) == 1
    assert prepare(DataConfig(path=str(books)), home).manifest.remarks == (remark,)
    whole = prepare(DataConfig(path=str(books), encoding="latin-1"), home)
    assert whole.manifest.remarks == ()
    assert whole.manifest.train.text_bytes + whole.manifest.validation.text_bytes == 5 * 14 + 5


def test_a_folder_that_was_prepared_before_its_reading_changed_is_prepared_anew(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"text": "one two three"}] * 9))
    config = DataConfig(path=str(path))
    with pytest.MonkeyPatch.context() as earlier:  # such as a version that trained on the syntax of a .json
        earlier.setattr("assay.data.sources.RECORD_FORMS", frozenset())
        earlier.setattr("assay.data.corpora._WAY_OF_READING", b"1")
        before = prepare(config, home)
    after = prepare(config, home)
    assert after.folder == before.folder
    assert "text" in before.tokenizer.decode(before.train.ids)
    assert "text" not in after.tokenizer.decode(after.train.ids)


def test_splits_that_datasets_saved_are_those_of_the_corpus(home: Home, tmp_path: Path) -> None:
    for split, text in {"train": "train", "validation": "held", "test": "test", "extra": "more"}.items():
        place = tmp_path / "many" / split
        place.mkdir(parents=True)
        table = arrow.table({"text": [text]})
        with arrow.ipc.new_stream(str(place / "data-00000-of-00001.arrow"), table.schema) as stream:
            stream.write_table(table)
    (tmp_path / "many" / "dataset_dict.json").write_text('{"splits": ["train", "validation", "test", "extra"]}')
    config = DataConfig(path=str(tmp_path / "many"))
    found = prepare(config, home)
    assert [found.tokenizer.decode(shard.ids) for shard in (found.train, found.validation)] == ["train", "held"]
    (remark,) = found.manifest.remarks
    assert (remark.count, remark.reason) == (2, "of a split that is not read")
    tested = prepare(config.model_copy(update={"evaluate_on": "test"}), home)
    assert tested.tokenizer.decode(tested.validation.ids) == "test"
    (tmp_path / "many" / "dataset_dict.json").write_text('{"splits": ["extra"]}')
    with pytest.raises(UsageError, match="without a split 'train'"):
        prepare(config, home)
