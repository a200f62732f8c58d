"""Turn a `DataConfig` into two texts: one for training, one held out.

A corpus is first listed (its files, cheaply stamped by size and time), then read. The held-out part is the last
`validation_fraction` of the characters, split off before tokenization, as in nanoGPT. WikiText-2, and a folder with
`train.txt` and `valid.txt`, have a validation split of their own, and perhaps a test split, `test.txt`. So does a data
set that `datasets` saved with several splits. `max_bytes`
limits each text that is read: the whole text before it is split, or each of a corpus's own splits.

`data.evaluate_on` chooses the part of the held-out text that becomes the validation split of a prepared corpus. The
vocabulary is that of all parts, so that settings chosen on one part apply to the other.

`stdlib` is the source text of the running Python's standard library. It needs no download, but differs between
versions of Python, and so does the corpus digest. Caveat: files are ordered by name. The held-out part (`t` to `z`)
is therefore different code from the training part, as with any text that is split at its end.

A corpus is held in memory whole, as text, while it is prepared.
"""

import hashlib
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from assay.config import DataConfig, Home
from assay.config.base import absolute
from assay.data.progress import Progress, silent
from assay.data.published import PUBLISHED, Published, check, ensure, folder_of
from assay.data.records import ReadingRules
from assay.data.sources import documents, files_at, folder_files, join_documents, saved_splits
from assay.data.tally import OTHER_SPLIT, Tally
from assay.errors import UsageError, suggestion
from assay.records.corpus import Remark

CORPORA = ("stdlib", "files", *PUBLISHED)

_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "__pycache__"}
_WAY_OF_READING = b"3"
"""It must change whenever the same files give another text, or other remarks."""
_OF_THIS_MACHINE = {"sitecustomize.py", "usercustomize.py"}


@dataclass(frozen=True)
class CorpusListing:
    """The files of a corpus, in order; `validation` is None if the held-out part is split off the training text."""

    title: str
    train: tuple[Path, ...]
    validation: tuple[Path, ...] | None = None
    test: tuple[Path, ...] | None = None
    lenient: bool = False
    """True if files that are not text are left out and counted."""
    published: Published | None = None
    remarks: tuple[Remark, ...] = ()
    """Names that the listing left out."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Return all files, training first."""
        return self.train + (self.validation or ()) + (self.test or ())


@dataclass(frozen=True)
class Corpus:
    """The training text and the validation text of a corpus; `unread` is held out as well, and is not evaluated on."""

    title: str
    train: str
    validation: str
    unread: str = ""
    remarks: tuple[Remark, ...] = ()
    """Parts of its files that are not read, or are read in a way that should be known."""

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the training text, a byte 0xFF, and the validation text, in UTF-8."""
        digest = hashlib.sha256(self.train.encode())
        digest.update(b"\xff")  # occurs in no UTF-8, so the digest depends on where the text is split
        digest.update(self.validation.encode())
        return digest.hexdigest()


def list_corpus(config: DataConfig, home: Home, progress: Progress = silent) -> CorpusListing:
    """Return the files of a configuration; a published corpus that is not in the cache is downloaded.

    Raises `UsageError` for an unknown corpus, a missing file, a glob without matches, or a failed download.
    """
    if config.source == "stdlib":
        title = f"standard library of Python {platform.python_version()}"
        return CorpusListing(title, tuple(_library_files(Path(os.__file__).parent)), lenient=True)
    if config.source == "files" and config.path is not None:
        return _list_path(config.path, tested=_in_parts(config))
    if config.source not in PUBLISHED:
        hint = suggestion(config.source, list(CORPORA)) or f"; the corpora are {', '.join(CORPORA)}"
        raise UsageError(f"unknown corpus {config.source!r}{hint}")
    corpus = PUBLISHED[config.source]
    ensure(corpus, home, progress, tested=_in_parts(config))
    folder = folder_of(corpus, home)
    validation = None if corpus.validation is None else (folder / corpus.validation.name,)
    test = None if corpus.test is None or not _in_parts(config) else (folder / corpus.test.name,)
    return CorpusListing(corpus.name, (folder / corpus.train.name,), validation, test, published=corpus)


def read_corpus(listing: CorpusListing, config: DataConfig, home: Home) -> Corpus:
    """Read the listed files and split off the held-out part.

    Raises `UsageError` if a file cannot be read as text, or if a split is empty.
    """
    if listing.published is not None:
        check(listing.published, home, tested=_in_parts(config))
    tally = Tally()
    text = _read(listing.train, listing, config, tally)
    if not text:
        told = "".join(f"; {remark}" for remark in (*listing.remarks, *tally.remarks()))
        raise UsageError(f"{listing.title} contains no text; name another corpus in data.corpus or data.path{told}")
    if listing.validation is not None:
        train, held_out = text, _read(listing.validation, listing, config, tally)
    else:
        cut = int((1 - config.validation_fraction) * len(text))
        train, held_out = text[:cut], text[cut:]
    evaluated, unread = _part(held_out, listing, config, tally)
    for name, part in (("training", train), (config.evaluate_on, evaluated)):
        if not part:
            raise UsageError(
                f"the {name} split of {listing.title} has no text; use more text or another data.validation_fraction"
            )
    return Corpus(listing.title, train, evaluated, unread, (*listing.remarks, *tally.remarks()))


def _in_parts(config: DataConfig) -> bool:
    """Return whether only a part of the held-out text is evaluated on."""
    return config.evaluate_on != "held-out"


def _part(held_out: str, listing: CorpusListing, config: DataConfig, tally: Tally) -> tuple[str, str]:
    """Return the held-out text that is evaluated on, and the rest of it."""
    if not _in_parts(config):
        return held_out, ""
    half = (len(held_out) + 1) // 2
    if listing.test:
        parts = (held_out, _read(listing.test, listing, config, tally))
    else:
        parts = (held_out[:half], held_out[half:])
    return parts if config.evaluate_on == "validation" else parts[::-1]


def stamp(files: Iterable[Path]) -> str:
    """Return the SHA-256 of the paths, sizes and modification times of files: equal while no file is modified.

    It depends on the way of reading as well. Raises `UsageError` if a file cannot be read.
    """
    digest = hashlib.sha256(_WAY_OF_READING)
    for path in files:
        try:
            status = path.stat()
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read ({error.strerror or error}); restore it or leave it out"
            ) from error
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _read(files: tuple[Path, ...], listing: CorpusListing, config: DataConfig, tally: Tally) -> str:
    limit = config.max_bytes
    reading = ReadingRules(config.text_field, config.encoding, listing.lenient, limit)
    return join_documents(documents(files, reading, tally), limit)


def _list_path(path: str, *, tested: bool) -> CorpusListing:
    folder = absolute(path)
    train, validation, test = (folder / f"{name}.txt" for name in ("train", "valid", "test"))
    if os.path.isfile(train) and os.path.isfile(validation):
        return _list_texts(path, train, validation, test if tested else None)
    if splits := saved_splits(folder):
        return _list_splits(path, splits, tested=tested)
    tally = Tally()
    found = tuple(files_at(path, tally))
    return CorpusListing(path, found, lenient=os.path.isdir(folder), remarks=tally.remarks())


def _list_texts(path: str, train: Path, validation: Path, test: Path | None) -> CorpusListing:
    """List a folder with texts of its own for training and validation; its other files are left out."""
    tests = (test,) if test is not None and os.path.isfile(test) else None
    tally = Tally()
    used = {train, validation, *(tests or ())}
    tally.add_files(OTHER_SPLIT, (one for one in folder_files(train.parent, tally) if one not in used))
    return CorpusListing(path, (train,), (validation,), tests, remarks=tally.remarks())


def _list_splits(path: str, splits: dict[str, Path], *, tested: bool) -> CorpusListing:
    """List a data set of several splits, of which `datasets` saved each in a folder."""
    tally = Tally()
    listed = {name: tuple(files_at(str(place), tally)) for name, place in splits.items()}
    test = listed.pop("test", None)
    train, validation = listed.pop("train"), listed.pop("validation", None)
    rest = [one for files in listed.values() for one in files] + list(() if tested else test or ())
    tally.add_files(OTHER_SPLIT, rest)
    return CorpusListing(path, train, validation, test if tested else None, remarks=tally.remarks())


def _library_files(root: Path) -> list[Path]:
    """Return the standard library's Python files, without tests and files installed or generated for this machine."""
    return [
        path for path in folder_files(root, Tally(), _NOT_LIBRARY) if path.suffix == ".py" and _is_library(path, root)
    ]


def _is_library(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    generated = parts[0].startswith(("config-", "_sysconfigdata"))
    return not generated and path.name not in _OF_THIS_MACHINE
