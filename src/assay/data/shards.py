"""Prepared folders with memory-mapped ids: `train.bin`, `validation.bin`, `tokenizer.json`, `manifest.json`.

A prepared folder is self-contained. A run opens it, checks it against its manifest and decodes samples from it. It
needs neither the corpus, the network nor the rest of the home.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.data.manifest import Manifest, SplitRecord, check_files, read_manifest, read_tokenizer
from assay.data.tokenizers import Tokenizer, from_json
from assay.errors import UsageError


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
    except (ValueError, KeyError) as error:
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
