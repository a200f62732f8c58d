"""The files of a corpus, listed before they are read, and a tally of what is not read or should be known.

A listing is stamped by sizes and times, which is cheap. Folders are listed recursively in the order of their paths,
without hidden names. Every byte of a corpus is read, or is in the tally with its reason. Parts with one reason are one
remark.

A data set has its splits in files of their own, and beside them metadata that is no text. `datasets` writes a folder
for each split (`save_to_disk`). Of other folders it tells the splits by the names of files and folders
(huggingface.co/docs/datasets/repository_structure). So do we, where all other files are a card and its kind.

`stdlib` is the source text of the running Python's standard library. It needs no download, but differs between versions
of Python, and so does the corpus digest. Caveat: files are ordered by name. The held-out part (`t` to `z`) is therefore
different code from the training part, as with any text that is split at its end.

A corpus is held in memory whole, as text, while it is prepared.
"""

import glob
import hashlib
import json
import os
import platform
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Literal

from assay.config import DataConfig, Home
from assay.config.base import absolute
from assay.data.compressed import RECORD_FORMS, form_of
from assay.data.progress import Progress, silent
from assay.data.published import PUBLISHED, Published, ensure, folder_of
from assay.errors import UsageError, suggestion
from assay.records.corpus import Remark


@dataclass(frozen=True)
class Reason:
    """A reason, and what happens to the parts to which it applies."""

    text: str
    kind: Literal["left out", "read as it is"] = "left out"
    what: str = "file"


HIDDEN = Reason("hidden", what="name")
NOT_REGULAR = Reason("a link without its file, or no file", what="name")
METADATA = Reason("metadata of a data set and no text")
UNLISTED = Reason("that the data set beside it does not list")
OTHER_SPLIT = Reason("of a split that is not read")
LINKED_FOLDER = Reason("a link to a folder, which is not followed", what="name")
FOLDER = Reason("a folder; the pattern **/* matches its files too", what="name")
MISSING = Reason("of which the numbers of its neighbours tell, and which is not there")
NULL = Reason("null and no text", what="record")
CARRIAGE_RETURNS = Reason(
    "with carriage returns (\\r), which become tokens; nanoGPT reads \\r\\n and \\r as \\n", "read as it is"
)
CARRIAGE_RETURNS_OF_RECORDS = Reason("with carriage returns (\\r), which become tokens", "read as it is", "record")
JOINED = Reason(
    "whose names tell of a split of its own; all files are one text, and its end is held out", "read as it is"
)
IN_UTF8 = Reason(
    "in valid UTF-8, whose characters beyond ASCII the encoding that is set reads as others", "read as it is"
)
MARKED = Reason("with a byte order mark, which becomes tokens; data.encoding=utf-8-sig leaves it out", "read as it is")


class Tally:
    """Counts parts of a corpus by reason, in the order in which they were first met."""

    def __init__(self) -> None:
        self._remarks: dict[Reason, Remark] = {}

    def add(self, reason: Reason, place: object, size_bytes: int | None = None, count: int = 1) -> None:
        """Count parts of a reason. `place` names the first of them; `size_bytes` is the size of all."""
        before = self._remarks.get(reason)
        if before is None:
            self._remarks[reason] = Remark(
                kind=reason.kind,
                reason=reason.text,
                what=reason.what,
                count=count,
                size_bytes=size_bytes,
                first=str(place),
            )
            return
        size = None if size_bytes is None else size_bytes + (before.size_bytes or 0)
        self._remarks[reason] = before.model_copy(update={"count": before.count + count, "size_bytes": size})

    def add_files(self, reason: Reason, paths: Iterable[Path]) -> None:
        """Count whole files of a reason."""
        for path in paths:
            self.add(reason, path, path.stat().st_size)

    @property
    def parts(self) -> int:
        """Number of all parts that were counted."""
        return sum(remark.count for remark in self._remarks.values())

    def remarks(self) -> tuple[Remark, ...]:
        """Return a remark per reason."""
        return tuple(self._remarks.values())


_METADATA = {"dataset_info.json", "state.json", "dataset_dict.json"}
"""Files that `datasets` writes beside the data of `save_to_disk`."""
_STATE = "state.json"
"""The one of them that lists the files with the data."""
_CACHE = "cache-"
"""Start of the name of a file that `datasets` keeps beside them for itself."""
_SPLITS = "dataset_dict.json"
_VALIDATION = ("validation", "valid", "val", "dev")
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys((*_VALIDATION, "validate"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_SPLIT_WORD = re.compile(rf"(?<![a-z])({'|'.join(_SPLIT_WORDS)})(?![a-z])")
_NUMBERED = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.")
_CARD = re.compile(
    r"README(\.\w+)?|LICEN[SC]E(\.\w+)?|NOTICE(\.\w+)?|CITATION\.cff|dataset_infos?\.json|.*\.py", re.IGNORECASE
)
"""Files that a data set of the hub has beside its records: a card, a license, and what once loaded it."""


def files_at(path: str, tally: Tally) -> list[Path]:
    """Return the files of a path, folder or glob, sorted; names of a folder that are left out go to the tally.

    Raises `UsageError` if there are none.
    """
    place = absolute(path)
    if os.path.isdir(place):
        found = folder_files(place, tally)
        if not found:
            raise UsageError(f"the folder {path} contains no files; name one with text")
        return found
    if os.path.isfile(place):
        return [place]
    if os.path.lexists(place):
        raise UsageError(f"{path} is not a regular file; name a text file, a folder or a pattern")
    if glob.has_magic(path):
        matches = sorted(Path(match).absolute() for match in glob.glob(str(place), recursive=True))
        found = [match for match in matches if match.is_file()]
        if not found:
            raise UsageError(f"no file matches {path!r}; correct the pattern")
        for rest in (match for match in matches if not match.is_file()):
            if not rest.is_dir():
                tally.add(NOT_REGULAR, rest)
            elif "**" not in path:  # that pattern matches the files of a folder too
                tally.add(FOLDER, rest)
        return found
    raise UsageError(f"there is no file or folder {path!r}; correct the path")


def folder_files(folder: Path, tally: Tally, left_out: Collection[str] = ()) -> list[Path]:
    """Return every file below a folder, sorted by relative path, without folders in `left_out`.

    Hidden names, and what lies beside the data of a data set that `datasets` saved, go to the tally. Raises
    `UsageError` if such data are missing.
    """
    found: list[tuple[str, Path]] = []
    root = folder.absolute()
    for place, folders, names in os.walk(root):
        for hidden in sorted(name for name in (*folders, *names) if name.startswith(".")):
            tally.add(HIDDEN, Path(place, hidden))
        folders[:] = [name for name in folders if not name.startswith(".") and name not in left_out]
        for linked in sorted(Path(place, name) for name in folders if Path(place, name).is_symlink()):
            tally.add(LINKED_FOLDER, linked)
        arrows = {name for name in names if name.endswith(".arrow")}
        listed = _listed_data(Path(place)) if _STATE in names else None
        saved = _METADATA & set(names) if arrows or listed is not None else set()
        for path in sorted(Path(place, name) for name in names if not name.startswith(".")):
            if not path.is_file():
                tally.add(NOT_REGULAR, path)
            elif path.name in saved or (saved and path.name.startswith(_CACHE)):
                tally.add_files(METADATA, [path])
            elif listed is not None and path.name in arrows - listed:
                tally.add_files(UNLISTED, [path])
            else:
                found.append((path.relative_to(root).as_posix(), path))
    return [path for _, path in sorted(found)]


def _listed_data(folder: Path) -> set[str] | None:
    """Return the names of the files with the data of a data set that `datasets` saved; None if it is none.

    Raises `UsageError` if one of them is missing.
    """
    try:
        found = {str(one["filename"]) for one in json.loads((folder / _STATE).read_bytes())["_data_files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if gone := sorted(name for name in found if not (folder / name).is_file()):
        raise UsageError(f"{folder} is a data set without its file {gone[0]}; copy it whole, or save it again")
    return found


def files_by_split(path: str, tally: Tally) -> dict[str, list[Path]]:
    """Return the files of each split of a data set: of `train`, `validation` and `test`, or else by its own name.

    Files of a path without splits have the empty name. Raises `UsageError` as `files_at`, and if a list of splits is
    damaged or has no `train`.
    """
    folder = absolute(path)
    if saved := _saved_splits(folder):
        return {name: files_at(str(place), tally) for name, place in saved.items()}
    files = files_at(path, tally)
    if os.path.isdir(folder):
        _note_missing(files, tally)
    return (os.path.isdir(folder) and _named_splits(folder, files, tally)) or {"": files}


def _note_missing(files: Iterable[Path], tally: Tally) -> None:
    """Count the files that are missing of those that the hub numbers, such as ``train-00000-of-00002.parquet``."""
    found: dict[tuple[Path, str, int], set[int]] = {}
    for one in files:
        if form_of(one) in RECORD_FORMS and (told := _NUMBERED.match(one.name)):
            found.setdefault((one.parent, told[1], int(told[3])), set()).add(int(told[2]))
    for (folder, name, count), numbers in found.items():
        first = 1 if count in numbers else 0
        gone = set(range(first, count + first)) - numbers
        if gone:
            tally.add(MISSING, folder / f"{name}-{min(gone):05d}-of-{count:05d}", count=len(gone))


def _saved_splits(folder: Path) -> dict[str, Path]:
    """Return the folder of each split that `datasets` saved."""
    try:
        names = json.loads((folder / _SPLITS).read_bytes())["splits"]
        found = {str(name): folder / str(name) for name in names}
    except OSError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / _SPLITS} is damaged; save the data set again") from error
    if "train" not in found:
        there = ", ".join(found) or "none"
        raise UsageError(f"{folder} is a data set without a split 'train' (it has {there}); name the folder of a split")
    validation = next((name for name in _VALIDATION if name in found), None)
    return {"validation" if name == validation else name: place for name, place in found.items()}


def _named_splits(folder: Path, files: Sequence[Path], tally: Tally) -> dict[str, list[Path]]:
    """Return the records of each split by their names; without names, all records beside a card are `train`.

    Empty unless all other files are a card and its kind.
    """
    root = folder.absolute()
    records = [one for one in files if form_of(one) in RECORD_FORMS and not _CARD.fullmatch(one.name)]
    beside = sorted(set(files) - set(records))
    if not records or not all(_CARD.fullmatch(one.name) for one in beside):
        return {}
    found: dict[str, list[Path]] = {}
    for one in records:
        found.setdefault(_split_of(one.relative_to(root)) or "", []).append(one)
    if found.keys() == {""} and beside:
        found = {"train": records}
    if "train" not in found or "" in found or not (beside or len(found) > 1):
        return {}
    tally.add_files(METADATA, beside)
    return found


def _split_of(path: PurePath) -> str | None:
    """Return the split that the name of a file tells, or else that of its folder; None if they tell none."""
    for name in (path.name, *(one.name for one in path.parents)):
        told = _SPLIT_WORD.search(name.lower())
        if told is not None:
            return _SPLIT_WORDS[told[1]]
    return None


CORPORA = ("stdlib", "files", *PUBLISHED)

_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "__pycache__"}
_WAY_OF_READING = b"6"
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
        return CorpusListing(title, _library_files(Path(os.__file__).parent), lenient=True)
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
    train, test = folder / "train.txt", folder / "test.txt"
    validation = next((one for name in _VALIDATION if os.path.isfile(one := folder / f"{name}.txt")), None)
    if os.path.isfile(train) and validation is not None:
        return _list_texts(path, train, validation, test if tested else None)
    tally = Tally()
    splits = files_by_split(path, tally)
    if "" not in splits:
        return _list_splits(path, splits, tally, tested=tested)
    texts = (one for one in splits[""] if one.suffix != ".py")  # a test of a program is no test set
    told = {one: _split_of(one.relative_to(folder) if one.is_relative_to(folder) else one) for one in texts}
    if "train" in told.values():
        tally.add_files(JOINED, (one for one, split in told.items() if split in ("validation", "test")))
    return CorpusListing(path, tuple(splits[""]), lenient=os.path.isdir(folder), remarks=tally.remarks())


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


@cache
def _library_files(root: Path) -> tuple[Path, ...]:
    """Return the standard library's Python files, without tests and files installed or generated for this machine."""
    found = folder_files(root, Tally(), _NOT_LIBRARY)
    return tuple(path for path in found if path.suffix == ".py" and _is_library(path, root))


def _is_library(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    generated = parts[0].startswith(("config-", "_sysconfigdata"))
    return not generated and path.name not in _OF_THIS_MACHINE
