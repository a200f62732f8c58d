"""The documents of a stream, from a given one on: from files, or from a data set of the Hugging Face hub.

A hub record whose text is null, and a blank document, are empty documents: they are counted and give no tokens. What is
left out is counted once, by the pass that has come furthest. A source is checked before a run as far as is possible
without reading all of it.

If the hub cannot be reached, its library retries for half a minute, and then reports that a file of its cache is
missing. The hub is therefore queried for the name first, once.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from assay.config import DataConfig
from assay.config.base import absolute
from assay.data.compressed import RECORD_FORMS, form_of
from assay.data.corpora import NULL, OTHER_SPLIT, Tally, files_by_split
from assay.data.records import ReadingRules
from assay.data.sources import documents
from assay.errors import UsageError, first_line
from assay.records.corpus import Remark

Documents = Callable[[int], Iterator[str]]
"""Number of a document → the texts from this document on, in an order that never changes."""

_GLANCE_BYTES = 2**24
"""Bytes that are read of a plain file to check that it holds text."""
_BEGINNING_BYTES = 2**16
"""Bytes of each plain file that are read before a run to tell which are no text."""
_GLANCE_DOCUMENTS = 10_000
"""Documents of records that are read to tell before a run how many have no text."""
_PATIENCE_SECONDS = 10.0


class DocumentPasses:
    """Counts what passes over the documents leave out. Each pass begins with the first document, and counts anew."""

    def __init__(self) -> None:
        self._fullest = self._newest = Tally()

    def begin(self) -> Tally:
        """Return the tally of a new pass."""
        self._fullest, self._newest = self.furthest, Tally()
        return self._newest

    @property
    def furthest(self) -> Tally:
        """The tally of the pass that has come furthest."""
        return max(self._fullest, self._newest, key=lambda tally: tally.parts)


class FileDocuments:
    """The records of files that hold some; other files are one document each, up to `limit_bytes`.

    Files that are not text are left out in a folder; a named one raises `UsageError` when it is read. A data set that
    `datasets` saved with several splits gives its training split. Raises `UsageError` if there are no files.
    """

    def __init__(self, path: str, config: DataConfig, limit_bytes: int | None = None) -> None:
        place, listed = absolute(path), Tally()
        splits = files_by_split(path, listed)
        self._files = splits.pop("" if "" in splits else "train")
        for other in splits.values():
            listed.add_files(OTHER_SPLIT, other)
        self._listed = listed.remarks()
        self._reading = ReadingRules(config.text_field, config.encoding, os.path.isdir(place), limit_bytes)
        self._passes = DocumentPasses()

    def __call__(self, start: int) -> Iterator[str]:
        """Yield the texts from a document on."""
        return islice(documents(self._files, self._reading, self._passes.begin()), start, None)

    def remarks(self) -> tuple[Remark, ...]:
        """Return what is left out of the files, as far as they were read. What a second pass meets counts once."""
        return (*self._listed, *self._passes.furthest.remarks())

    def glance(self) -> tuple[Remark, ...]:
        """Return what the names and the beginnings of plain files tell; no records are read."""
        tally, begun = Tally(), replace(self._reading, limit_bytes=_BEGINNING_BYTES)
        if self._reading.lenient:
            deque(documents((one for one in self._files if form_of(one) not in RECORD_FORMS), begun, tally), maxlen=0)
        return (*self._listed, *tally.remarks())

    def glance_at_records(self) -> tuple[Remark, ...]:
        """Return what the first records tell."""
        tally = Tally()
        records = (one for one in self._files if form_of(one) in RECORD_FORMS)
        return _first_documents(documents(records, self._reading, tally), tally)


class DatasetDocuments:
    """The streamed records of a data set of Hugging Face's hub, or of a folder that its library reads.

    Reading raises `UsageError` if the data set cannot be streamed or lacks the text field.
    """

    def __init__(self, name: str, split: str, text_field: str) -> None:
        self._name, self._split, self._field = name, split, text_field
        self._passes = DocumentPasses()

    def __call__(self, start: int) -> Iterator[str]:
        """Yield the texts from a document on. Those before it are read too, so that all without text are counted."""
        return islice(self._read(self._passes.begin()), start, None)

    def remarks(self) -> tuple[Remark, ...]:
        """Return what is left out of the records, as far as they were read."""
        return self._passes.furthest.remarks()

    def glance_at_records(self) -> tuple[Remark, ...]:
        """Return what the first records of a folder tell; nothing is fetched from the hub."""
        tally = Tally()
        return _first_documents(self._read(tally), tally) if is_local(self._name) else ()

    def _read(self, tally: Tally) -> Iterator[str]:
        from datasets import load_dataset

        if not is_local(self._name):
            _ask_hub(self._name)
        try:
            for number, record in enumerate(load_dataset(self._name, split=self._split, streaming=True), start=1):
                text = _text(record, self._field, self._name)
                if text is None:
                    tally.add(NULL, f"{self._name}, record {number}")
                yield text or ""
        except UsageError:
            raise
        except Exception as error:  # exceptions of the library, its network client and every format that it reads
            raise UsageError(f"{self._name} cannot be streamed: {first_line(error)}") from error


def _first_documents(texts: Iterator[str], tally: Tally) -> tuple[Remark, ...]:
    """Read the first documents, and return what their tally has; it says so if there are more."""
    deque(islice(texts, _GLANCE_DOCUMENTS), maxlen=0)
    found = tally.remarks()
    if next(texts, None) is None:
        return tally.remarks()
    among = f", among the first {_GLANCE_DOCUMENTS:,} documents"
    return tuple(one.model_copy(update={"reason": one.reason + among}) for one in found)


def check_files(path: str, config: DataConfig) -> None:
    """Raise `UsageError` if the files of a path cannot be read up to the first text."""
    _some_text(FileDocuments(path, config, _GLANCE_BYTES)(0), path)


def check_dataset(name: str, split: str, text_field: str) -> None:
    """Raise `UsageError` if a folder cannot be read up to the first text, or if the hub has no such data set."""
    if is_local(name):
        _some_text(DatasetDocuments(name, split, text_field)(0), name)
    else:
        _ask_hub(name)


def is_local(name: str) -> bool:
    """True if the hub's library looks for the name on this machine; hub names have at most one slash, inside."""
    return os.path.isdir(name) or Path(name).is_absolute() or name.count("/") > 1


def _some_text(texts: Iterable[str], source: str) -> None:
    if not any(text.strip() for text in texts):
        raise UsageError(f"{source} contains no text to stream; name documents with text")


def _text(record: dict[str, Any], text_field: str, name: str) -> str | None:
    if text_field not in record:
        there = ", ".join(record) or "none"
        raise UsageError(f"{name} lacks the text field {text_field!r} (it has {there}); set data.text_field")
    text = record[text_field]
    if text is not None and not isinstance(text, str):
        raise UsageError(f"{name}: the field {text_field!r} is not text; name a text field in data.text_field")
    return text


def _ask_hub(name: str) -> None:
    from datasets import config
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    if config.HF_HUB_OFFLINE:
        return  # offline, the library looks in its cache only
    try:
        HfApi(endpoint=config.HF_ENDPOINT).dataset_info(name, timeout=_PATIENCE_SECONDS)
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise UsageError(
            f"there is no folder {name!r}, and no data set of that name on the hub that you can read; "
            "correct the name, or log in if the data set is private"
        ) from error
    except Exception as error:  # the type depends on the library's HTTP client
        raise UsageError(
            f"the hub cannot be reached for the data set {name!r} ({first_line(error)}); go online, or stream from "
            "files with streaming:path"
        ) from error
