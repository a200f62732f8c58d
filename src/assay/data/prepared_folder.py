"""A prepared folder: `train.bin`, `validation.bin`, `tokenizer.json` and `manifest.json`, against which it is checked.

The folder is self-contained. A run opens it, checks it, maps its ids into memory and decodes samples from it. It needs
neither the corpus, the network nor the rest of the home.

The digest of the manifest identifies the content: ids and bytes of both splits, and how the ids are stored. The origin
of the text is not part of it. Nor is the text of tokenizer.json, which may differ between versions of the tokenizers
library. Equal digests mean that training reads the same numbers.

A shard of up to `WHOLE_BYTES` is hashed whole when it is opened. A larger one is checked by its size and its first and
last mebibyte, which detects a truncated file, but not every flipped bit. A thorough check always hashes it whole.

Batches need no loader: a step's tokens are a pure function of (seed, step). No state is kept between steps, so a
resumed run, another number of ranks or another cut of the batch gets exactly the same sequences. Offsets are drawn from
a Philox generator, with the seed as key and the step as counter: streams of different steps never overlap. They are
uniform with replacement, like nanoGPT's; there are no epochs.

Validation reads its split in order, in windows that do not overlap, so each token is predicted once. The first tokens
of a window have little context, so the loss is slightly higher than with a sliding window.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from assay.config.base import Frozen
from assay.data.tokenizers import Tokenizer, from_json
from assay.errors import UsageError
from assay.records.corpus import Remark

FORMAT: Literal[1] = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
WHOLE_BYTES = 256 * 2**20
EDGE_BYTES = 2**20

_SMALL_VOCABULARY = 2**16


class SplitRecord(Frozen):
    """One shard: its ids in `file`, and figures of the text that they encode."""

    file: str
    tokens: int
    text_bytes: int
    """UTF-8 bytes of the split's text."""
    size_bytes: int
    sha256: str
    edges_sha256: str
    """SHA-256 of the file's first and last mebibyte."""
    unknown: int | None = None
    """Tokens for text that the tokenizer does not know, and visible characters that it dropped; None if not counted,
    as in older manifests."""

    @property
    def unknown_share(self) -> float:
        """Return the share of unknown tokens and dropped characters; 0 if they were not counted, 1 if all are."""
        return min(1.0, (self.unknown or 0) / max(1, self.tokens))


class Source(Frozen):
    """Origin of the text."""

    title: str
    files: int
    stamp: str
    """Digest of paths, sizes and times of the text's and tokenizer's files: while it stays, they are not read again."""
    text_sha256: str
    config: dict[str, Any]
    """The `DataConfig` as plain values."""
    remarks: tuple[Remark, ...] = ()
    """Parts of the files that are not read, or are read in a way that should be known; empty in older manifests."""


class Manifest(Frozen):
    """Contents of manifest.json."""

    format: Literal[1] = FORMAT
    source: Source
    tokenizer: str
    vocab_size: int
    tokenizer_sha256: str
    """SHA-256 of tokenizer.json."""
    dtype: Literal["uint16", "uint32"]
    train: SplitRecord
    validation: SplitRecord
    digest: str

    @property
    def numpy_dtype(self) -> npt.DTypeLike:
        """Return the type of an id on disk: little-endian on every machine."""
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Return what should be known of the corpus: parts that are not read, and tokens that are unknown."""
        unknown = [split for split in self.splits if split.unknown]
        if not unknown:
            return self.source.remarks
        told = " and ".join(f"{split.unknown_share:.2g} of {split.file}" for split in unknown)
        spelled = Remark(
            kind="unknown",
            reason=f"which the tokenizer cannot spell ({told})",
            what="token",
            count=sum(split.unknown or 0 for split in unknown),
            first=f"in {unknown[0].file}",
        )
        return (*self.source.remarks, spelled)

    @property
    def splits(self) -> tuple[SplitRecord, SplitRecord]:
        """Return the training split and the validation split."""
        return self.train, self.validation


def dtype_for(vocab_size: int) -> Literal["uint16", "uint32"]:
    """Return the smaller type that holds every id."""
    return "uint16" if vocab_size <= _SMALL_VOCABULARY else "uint32"


def content_digest(vocab_size: int, dtype: str, splits: tuple[SplitRecord, SplitRecord]) -> str:
    """Return the SHA-256, 64 hexadecimal digits, of everything that training reads."""
    content = [vocab_size, dtype, *([s.tokens, s.text_bytes, s.size_bytes, s.sha256, s.edges_sha256] for s in splits)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a prepared folder.

    Raises `UsageError` if it is missing, unreadable, damaged or inconsistent.
    """
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{folder} is not a prepared corpus; run assay data prepare") from None
    except OSError as error:
        raise UsageError(f"{folder / MANIFEST} cannot be read ({error.strerror or error}); {_again(folder)}") from error
    except ValidationError as error:
        raise UsageError(f"{folder / MANIFEST} is damaged or has another format; {_again(folder)}") from error
    width = np.dtype(manifest.dtype).itemsize
    agrees = all(split.tokens * width == split.size_bytes and split.tokens > 0 for split in manifest.splits)
    if not agrees or manifest.digest != content_digest(manifest.vocab_size, manifest.dtype, manifest.splits):
        raise UsageError(f"{folder / MANIFEST} is inconsistent; {_again(folder)}")
    return manifest


def check_files(folder: Path, manifest: Manifest, *, thorough: bool = False) -> None:
    """Check the shards and the tokenizer against the manifest. Raises `UsageError` if one does not match."""
    for split in manifest.splits:
        path = folder / split.file
        if not _matches(path, split, whole=thorough or split.size_bytes <= WHOLE_BYTES):
            raise UsageError(f"{path} does not match its manifest; {_again(folder)}")
    read_tokenizer(folder, manifest)


def read_tokenizer(folder: Path, manifest: Manifest) -> str:
    """Return the text of tokenizer.json. Raises `UsageError` if it does not match the manifest."""
    path = folder / TOKENIZER
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}); {_again(folder)}") from error
    if hashlib.sha256(content).hexdigest() != manifest.tokenizer_sha256:
        raise UsageError(f"{path} does not match its manifest; {_again(folder)}")
    return content.decode()


def edges_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's first and last mebibyte, which overlap in a small file."""
    with path.open("rb") as stream:
        digest = hashlib.sha256(stream.read(EDGE_BYTES))
        stream.seek(max(0, path.stat().st_size - EDGE_BYTES))
        digest.update(stream.read(EDGE_BYTES))
    return digest.hexdigest()


def _matches(path: Path, split: SplitRecord, *, whole: bool) -> bool:
    try:
        if path.stat().st_size != split.size_bytes:
            return False
        if not whole:
            return edges_sha256(path) == split.edges_sha256
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == split.sha256
    except OSError:
        return False


def _again(folder: Path) -> str:
    return f"delete {folder} or run assay data prepare again"


class Shard:
    """The ids of one split, memory-mapped and read-only; its length is in tokens."""

    def __init__(self, path: Path, name: str, dtype: npt.DTypeLike) -> None:
        self.path = path
        self.name = name
        self.ids: npt.NDArray[np.unsignedinteger[Any]] = np.memmap(path, dtype=dtype, mode="r")
        """Token ids, `[tokens]`, uint16 or uint32."""

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    def __repr__(self) -> str:
        return f"Shard({self.name!r}, {len(self)} tokens, {self.path})"


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus, checked and opened."""

    folder: Path
    manifest: Manifest
    train: Shard
    validation: Shard
    notes: tuple[str, ...] = ()
    """Notes for the user: the source had changed, a damaged folder was prepared again."""

    @property
    def vocab_size(self) -> int:
        """Return the vocabulary size; every id is smaller."""
        return self.manifest.vocab_size

    @property
    def digest(self) -> str:
        """Return the digest of the content, 64 hexadecimal digits."""
        return self.manifest.digest

    @property
    def bytes_per_token(self) -> float:
        """Return UTF-8 bytes per token of the validation text: bits per byte = loss in nats / ln 2 / this."""
        return self.manifest.validation.text_bytes / self.manifest.validation.tokens

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer at first use. Raises `UsageError` if tokenizer.json is missing or was changed."""
        return load_tokenizer(self.folder)


def open_prepared(folder: Path | str, *, thorough: bool = False) -> Prepared:
    """Open a prepared folder and check it against its manifest; `thorough` also hashes large shards whole.

    Raises `UsageError` if the folder is not a prepared corpus, or if a file is missing, truncated or changed.
    """
    folder = Path(folder).absolute()
    manifest = read_manifest(folder)
    check_files(folder, manifest, thorough=thorough)
    train, validation = (_shard(folder, name, manifest) for name in ("train", "validation"))
    return Prepared(folder, manifest, train, validation)


def load_tokenizer(folder: Path | str) -> Tokenizer:
    """Load the tokenizer of a prepared folder. Raises `UsageError` if it is missing or was changed."""
    folder = Path(folder).absolute()
    manifest = read_manifest(folder)
    text = read_tokenizer(folder, manifest)
    try:
        return from_json(text, manifest.tokenizer, manifest.vocab_size)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"the tokenizer in {folder} cannot be loaded: {error}; run assay data prepare again"
        ) from error


def check_lengths(prepared: Prepared, context_length: int) -> None:
    """Raise `UsageError` if a split is too short for one sequence and its targets; the message names the split."""
    for shard in (prepared.train, prepared.validation):
        check_length(shard, context_length)


def check_length(shard: Shard, context_length: int) -> None:
    """Raise `UsageError` if this split is too short for one sequence and its targets."""
    if len(shard) < context_length + 1:
        raise UsageError(
            f"the {shard.name} split has {len(shard)} tokens, but one sequence with its targets needs"
            f" {context_length + 1}; use more text or a smaller model.context_length"
        )


def _shard(folder: Path, name: str, manifest: Manifest) -> Shard:
    split: SplitRecord = getattr(manifest, name)
    return Shard(folder / split.file, name, manifest.numpy_dtype)


Batch = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Inputs and targets, int64, `[sequences, context_length]`: `targets[:, t]` is the token after `inputs[:, t]`."""


class ValidationWindows:
    """A sequence of validation `Batch`es, each read from disk when it is indexed or iterated over."""

    def __init__(self, shard: Shard, starts: list[npt.NDArray[np.int64]], context_length: int, rest: int) -> None:
        self._shard = shard
        self._starts = starts
        self._context_length = context_length
        self._rest = rest

    @property
    def targets(self) -> int:
        """Return the number of tokens that all batches together predict."""
        return sum(len(starts) for starts in self._starts) * self._context_length + self._rest

    def __len__(self) -> int:
        return len(self._starts) + bool(self._rest)

    def __getitem__(self, index: int) -> Batch:
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        if position < len(self._starts):
            return _gather(self._shard, self._starts[position], self._context_length)
        return _gather(self._shard, np.array([len(self._shard) - 1 - self._rest]), self._rest)

    def __iter__(self) -> Iterator[Batch]:
        return (self[index] for index in range(len(self)))


def validation_windows(
    shard: Shard, context_length: int, batch_size: int, batches: int | None = None
) -> ValidationWindows:
    """Return the validation batches, the same at every call.

    `batches=None` covers the split: windows at 0, T, 2T, … in batches of up to `batch_size` rows, then one shorter
    window `[1, rest]`. Every token but the first is then a target exactly once. `batches=N` gives N full batches, with
    windows spread evenly over the split. A short split gives fewer, or a single smaller batch.
    Raises `UsageError` if the split is too short for one window.
    """
    check_length(shard, context_length)
    windows, rest = divmod(len(shard) - 1, context_length)
    if batches is None:
        chosen = np.arange(windows, dtype=np.int64)
    else:
        rest = 0
        count = min(batches * batch_size, windows // batch_size * batch_size) or windows
        chosen = np.arange(count, dtype=np.int64) * windows // count
    parts = math.ceil(len(chosen) / batch_size)
    starts = [chosen[part * batch_size : (part + 1) * batch_size] * context_length for part in range(parts)]
    return ValidationWindows(shard, starts, context_length, rest)


def _gather(shard: Shard, offsets: npt.NDArray[np.int64], length: int) -> Batch:
    """Return sequences of a shard, which begin at these offsets, and their targets."""
    block = shard.ids[offsets[:, None] + np.arange(length + 1)]
    return block[:, :-1].astype(np.int64, order="C"), block[:, 1:].astype(np.int64, order="C")


_KEY_BITS = 128


class Batches:
    """Training batches of one shard.

    Raises `UsageError` if the shard is too short for one sequence and its targets.
    """

    def __init__(self, shard: Shard, seed: int, batch_size: int, context_length: int) -> None:
        check_length(shard, context_length)
        self.shard = shard
        self.seed = seed
        self.batch_size = batch_size
        self.context_length = context_length

    def offsets(self, step: int) -> npt.NDArray[np.int64]:
        """Return the start positions of a step's sequences, `[batch_size]`, int64; the last token can be a target."""
        starts = len(self.shard) - self.context_length
        # The step is a high word of the counter, so each step has 2^128 draws of its own. Raw words and a remainder
        # are used, because NumPy guarantees the raw stream, but not that of `Generator.integers`. The bias of the
        # remainder is below 2^-30 for any corpus of less than 2^34 tokens.
        raw = np.random.Philox(key=self.seed % 2**_KEY_BITS, counter=[0, 0, step, 0]).random_raw(self.batch_size)
        return (np.asarray(raw, dtype=np.uint64) % np.uint64(starts)).astype(np.int64)

    def at(self, step: int, share: tuple[int, int] = (0, 1)) -> Batch:
        """Return the batch of a step; `share=(index, count)` selects every count-th row, from the index-th on.

        The i-th micro-batches of all shares together are thus the i-th micro-batch of the whole batch. Raises
        `UsageError` if the batch cannot be divided equally.
        """
        index, count = share
        if count < 1 or not 0 <= index < count:
            raise ValueError(f"there is no share {index} of {count}")
        if self.batch_size % count:
            raise UsageError(f"a batch of {self.batch_size} sequences cannot be cut into {count} equal shares")
        return _gather(self.shard, self.offsets(step)[index::count], self.context_length)
