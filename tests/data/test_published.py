"""Downloads, without a network: what is checked, what may be put in place by hand, what is said offline."""

import errno
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pooch
import pytest

from assay.config import DataConfig, Home
from assay.data import published
from assay.data.corpora import list_corpus
from assay.data.sources import read_corpus
from assay.errors import StorageError, UsageError

WIKITEXT = DataConfig(corpus="wikitext-2")


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> list[str]:
    asked: list[str] = []

    def retrieve(url: str, known_hash: str | None, fname: str, path: str) -> str:
        asked.append(url)
        (Path(path) / fname).write_bytes(content)
        return str(Path(path) / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    return asked


def fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def retrieve(*args: Any, **keywords: Any) -> str:
        raise error

    monkeypatch.setattr(pooch, "retrieve", retrieve)


def place_wikitext(home: Home) -> Path:
    folder = home.cache / "wikitext-2"
    folder.mkdir(parents=True)
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_text(f"the {name} text\n" * 20)
    return folder


def test_offline_names_the_place_for_a_copy_by_hand(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, ConnectionError("no route to host\nmore"))
    with pytest.raises(UsageError, match=r"no route to host\); place the file at .*shakespeare/input.txt by hand$"):
        list_corpus(DataConfig(corpus="shakespeare"), home)
    assert list((home.cache / "shakespeare").iterdir()) == []


def test_a_full_disk_is_no_missing_network(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(StorageError, match="No space left"):
        list_corpus(DataConfig(corpus="shakespeare"), home)


def test_a_download_that_is_not_the_published_file_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, b"<html>moved</html>")
    with pytest.raises(UsageError, match="no longer has the published file"):
        list_corpus(WIKITEXT, home)
    assert not (home.cache / "wikitext-2" / "train.txt").exists()


def test_a_download_is_fetched_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"All:\nSpeak, speak.\n" * 10
    download = published.Download("input.txt", "https://example.org/x", sha256=hashlib.sha256(content).hexdigest())
    corpus = published.Published("shakespeare", download, one_form=True)
    monkeypatch.setitem(published.PUBLISHED, "shakespeare", corpus)
    asked = serve(monkeypatch, content)
    config = DataConfig(corpus="shakespeare")
    for _ in range(2):
        assert read_corpus(list_corpus(config, home), config, home).train.startswith("All:")
    assert asked == ["https://example.org/x"]


def test_a_git_blob_id_proves_a_file() -> None:
    # `printf 'hello\n' | git hash-object --stdin`
    download = published.Download("a", "", git_blob="ce013625030ba8dba906f756967f9e9ca394464a")
    assert download.proves(b"hello\n")
    assert not download.proves(b"hello")


def test_wikitext_put_in_place_by_hand_serves_and_is_pinned(home: Home) -> None:
    folder = place_wikitext(home)
    corpus = read_corpus(list_corpus(WIKITEXT, home), WIKITEXT, home)
    assert corpus.train.startswith("the train.txt")
    assert corpus.validation.startswith("the valid.txt")
    (folder / "train.txt").write_text("something else")
    with pytest.raises(UsageError, match="no longer the file that was first used"):
        read_corpus(list_corpus(WIKITEXT, home), WIKITEXT, home)
    (folder / "sha256.json").write_text("{")
    with pytest.raises(UsageError, match="is damaged; delete it"):
        read_corpus(list_corpus(WIKITEXT, home), WIKITEXT, home)
    (folder / "sha256.json").unlink()
    assert read_corpus(list_corpus(WIKITEXT, home), WIKITEXT, home).train == "something else"


def test_the_test_split_is_read_only_if_it_is_asked_for(home: Home) -> None:
    folder = place_wikitext(home)
    read_corpus(list_corpus(WIKITEXT, home), WIKITEXT, home)
    (folder / "test.txt").write_text("the test.txt text\n" * 20)
    config = WIKITEXT.model_copy(update={"evaluate_on": "test"})
    corpus = read_corpus(list_corpus(config, home), config, home)
    assert corpus.validation.startswith("the test.txt")
    assert corpus.unread.startswith("the valid.txt")
    (folder / "test.txt").write_text("something else")
    assert read_corpus(list_corpus(WIKITEXT, home), WIKITEXT, home).train.startswith("the train.txt")
    with pytest.raises(UsageError, match=r"test.txt is no longer the file that was first used"):
        read_corpus(list_corpus(config, home), config, home)


def test_the_digest_of_wikitext_is_that_of_the_shared_file(shared: Callable[[str], Path]) -> None:
    for download in published.WIKITEXT_2.downloads(tested=True)[1:]:  # the articles of train stand in another order
        assert download.proves(shared(f"wikitext-2/{download.name}").read_bytes())


def test_another_shakespeare_is_refused(home: Home) -> None:
    (home.cache / "shakespeare").mkdir(parents=True)
    (home.cache / "shakespeare" / "input.txt").write_text("To be")
    config = DataConfig(corpus="shakespeare")
    with pytest.raises(UsageError, match="is not the published shakespeare"):
        read_corpus(list_corpus(config, home), config, home)
