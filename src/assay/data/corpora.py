"""The files of a corpus, listed before they are read.

A listing is stamped by sizes and times, which is cheap. [`folders`](folders.py) tells which files a path has.

`stdlib` is the source text of the running Python's standard library. It needs no download, but differs between versions
of Python, and so does the corpus digest. Caveat: files are ordered by name. The held-out part (`t` to `z`) is therefore
different code from the training part, as with any text that is split at its end.

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
from assay.data.folders import OTHER_SPLIT, Tally, files_at, files_by_split, folder_files
from assay.data.progress import Progress, silent
from assay.data.published import PUBLISHED, Published, ensure, folder_of
from assay.errors import UsageError, suggestion
from assay.records.corpus import Remark

CORPORA = ("stdlib", "files", *PUBLISHED)

_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "__pycache__"}
_WAY_OF_READING = b"5"
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


def list_corpus(config: DataConfig, home: Home, progress: Progress = silent) -> CorpusListing:
    """Return the files of a configuration; a published corpus that is not in the cache is downloaded.

    Raises `UsageError` for an unknown corpus, a missing file, a glob without matches, or a failed download.
    """
    if config.source == "stdlib":
        title = f"standard library of Python {platform.python_version()}"
        return CorpusListing(title, tuple(_library_files(Path(os.__file__).parent)), lenient=True)
    if config.source == "files" and config.path is not None:
        return _list_path(config.path, tested=in_parts(config))
    if config.source not in PUBLISHED:
        hint = suggestion(config.source, list(CORPORA)) or f"; the corpora are {', '.join(CORPORA)}"
        raise UsageError(f"unknown corpus {config.source!r}{hint}")
    corpus = PUBLISHED[config.source]
    ensure(corpus, home, progress, tested=in_parts(config))
    folder = folder_of(corpus, home)
    validation = None if corpus.validation is None else (folder / corpus.validation.name,)
    test = None if corpus.test is None or not in_parts(config) else (folder / corpus.test.name,)
    return CorpusListing(corpus.name, (folder / corpus.train.name,), validation, test, published=corpus)


def in_parts(config: DataConfig) -> bool:
    """Return whether only a part of the held-out text is evaluated on."""
    return config.evaluate_on != "held-out"


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


def _list_path(path: str, *, tested: bool) -> CorpusListing:
    folder = absolute(path)
    train, validation, test = (folder / f"{name}.txt" for name in ("train", "valid", "test"))
    if os.path.isfile(train) and os.path.isfile(validation):
        return _list_texts(path, train, validation, test if tested else None)
    tally = Tally()
    if splits := files_by_split(path, tally):
        return _list_splits(path, splits, tally, tested=tested)
    found = tuple(files_at(path, tally))
    return CorpusListing(path, found, lenient=os.path.isdir(folder), remarks=tally.remarks())


def _list_texts(path: str, train: Path, validation: Path, test: Path | None) -> CorpusListing:
    """List a folder with texts of its own for training and validation; its other files are left out."""
    tests = (test,) if test is not None and os.path.isfile(test) else None
    tally = Tally()
    used = {train, validation, *(tests or ())}
    tally.add_files(OTHER_SPLIT, (one for one in folder_files(train.parent, tally) if one not in used))
    return CorpusListing(path, (train,), (validation,), tests, remarks=tally.remarks())


def _list_splits(path: str, splits: dict[str, list[Path]], tally: Tally, *, tested: bool) -> CorpusListing:
    """List a data set of several splits."""
    listed = {name: tuple(files) for name, files in splits.items()}
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
