"""Corpora that are downloaded once, by URL, into the cache: tinyshakespeare and WikiText-2.

A download is verified before it gets its name: by SHA-256, or by the id of the publisher's git blob if only that is
known. A file may also be put into the cache by hand. Tinyshakespeare must then be exactly the published file.
WikiText-2 circulates with its articles in several orders, so a file put there by hand is trusted on first use. Its
SHA-256 is recorded in the same folder and must stay the same afterwards.

WikiText-2 is the word-level text with `<unk>` from `pytorch/examples`. Its `test.txt` is fetched if `data.evaluate_on`
asks for a part of what is held out.
"""

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.config import Home
from assay.data.progress import Progress
from assay.errors import StorageError, UsageError, first_line
from assay.files import DISK_ERRNOS, write_file

_PINS = "sha256.json"
_KARPATHY = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
_PYTORCH = (
    "https://raw.githubusercontent.com/pytorch/examples/d5678bc8ac0cdd79dbd5e44d4130271018bcec4e/"
    "word_language_model/data/wikitext-2/"
)


@dataclass(frozen=True)
class Download:
    """One file: its name in the cache, its URL, and its SHA-256 or git blob id."""

    name: str
    url: str
    sha256: str | None = None
    git_blob: str | None = None

    def proves(self, content: bytes) -> bool:
        """True if `content` is the published file."""
        if self.sha256 is not None:
            return hashlib.sha256(content).hexdigest() == self.sha256
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == self.git_blob


@dataclass(frozen=True)
class Published:
    """A corpus of one file, or of one for each split; `one_form` if only the published text is valid."""

    name: str
    train: Download
    one_form: bool
    validation: Download | None = None
    test: Download | None = None

    def downloads(self, *, tested: bool) -> tuple[Download, ...]:
        """Return its files; that of the test split only if it is `tested`."""
        splits = (self.train, self.validation, self.test if tested else None)
        return tuple(one for one in splits if one is not None)


SHAKESPEARE = Published(
    "shakespeare",
    Download(
        "input.txt",
        _KARPATHY + "input.txt",
        sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    one_form=True,
)
WIKITEXT_2 = Published(
    "wikitext-2",
    Download("train.txt", _PYTORCH + "train.txt", git_blob="2d84b35af79e411d73ea7cae83c73964c6ac83b4"),
    one_form=False,
    validation=Download(
        "valid.txt",
        _PYTORCH + "valid.txt",
        sha256="f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
    ),
    test=Download(
        "test.txt",
        _PYTORCH + "test.txt",
        sha256="d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
    ),
)
PUBLISHED = {corpus.name: corpus for corpus in (SHAKESPEARE, WIKITEXT_2)}


class NotDownloaded(UsageError):
    """A published text is not in the cache, and could not be downloaded."""

    def __init__(self, url: str, remedy: str) -> None:
        super().__init__(f"{url} could not be downloaded{remedy}")
        self.url = url


def folder_of(corpus: Published, home: Home) -> Path:
    """Return the folder of its files, where they may also be put by hand."""
    return home.cache / corpus.name


def ensure(corpus: Published, home: Home, progress: Progress, *, tested: bool) -> None:
    """Download the files that are missing in the cache; that of the test split only if it is `tested`.

    Raises `UsageError` with the path for a manual copy if a download fails, `StorageError` if the disk cannot be
    written.
    """
    folder = folder_of(corpus, home)
    for download in corpus.downloads(tested=tested):
        if not (folder / download.name).is_file():
            progress(f"downloading {download.url}", None)
            _fetch(download, folder)


def check(corpus: Published, home: Home, *, tested: bool) -> None:
    """Check the cached files against the published or the recorded digest. Raises `UsageError` if one differs."""
    folder = folder_of(corpus, home)
    recorded = _recorded(folder)
    seen = dict(recorded)
    for download in corpus.downloads(tested=tested):
        content = _content(folder / download.name)
        if corpus.one_form and not download.proves(content):
            raise UsageError(f"{folder / download.name} is not the published {corpus.name}; delete or replace it")
        sha256 = hashlib.sha256(content).hexdigest()
        if seen.setdefault(download.name, sha256) != sha256:
            raise UsageError(
                f"{folder / download.name} is no longer the file that was first used;"
                f" restore it, or delete {folder / _PINS} to accept it"
            )
    if seen != recorded:
        write_file(folder / _PINS, json.dumps(seen, indent=1, sort_keys=True).encode())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}); repair or delete it") from error


def _recorded(folder: Path) -> dict[str, str]:
    try:
        pins = json.loads((folder / _PINS).read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        pins = None
    if not isinstance(pins, dict) or not all(isinstance(value, str) for value in pins.values()):
        raise UsageError(f"{folder / _PINS} is damaged; delete it to accept the files in its folder")
    return pins


def _fetch(download: Download, folder: Path) -> None:
    place = folder / download.name
    try:
        content = _retrieve(download, folder)
    except Exception as error:  # every library of the download stack has its own exceptions
        if isinstance(error, OSError) and error.errno in DISK_ERRNOS:
            raise StorageError(f"{place} could not be written: {error.strerror}") from error
        reason = first_line(error)[:120]
        raise NotDownloaded(download.url, f" ({reason}); place the file at {place} by hand") from error
    if not download.proves(content):
        raise UsageError(f"{download.url} no longer has the published file; place a copy of it at {place} by hand")
    write_file(place, content)


def _retrieve(download: Download, folder: Path) -> bytes:
    import pooch

    # pooch logs the hash of a file without a known hash; such a file is verified after the download.
    pooch.get_logger().setLevel(logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    known = None if download.sha256 is None else f"sha256:{download.sha256}"
    with TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
        return Path(pooch.retrieve(download.url, known_hash=known, fname=download.name, path=temporary)).read_bytes()
