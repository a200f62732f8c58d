"""A prepared folder of random tokens, for steps whose losses do not matter."""

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from assay.data.prepared_folder import (
    MANIFEST,
    TOKENIZER,
    Manifest,
    Source,
    SplitRecord,
    content_digest,
    dtype_for,
    edges_sha256,
)


def write_random(folder: Path, vocab_size: int, tokens: int, seed: int = 0) -> Path:
    """Write a prepared folder whose two splits have so many random ids below `vocab_size`, and return it.

    It can be trained on like any other. It has no tokenizer, so nothing can be decoded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dtype = dtype_for(vocab_size)
    drawn = np.random.default_rng(seed)
    splits = (
        _split(folder / "train.bin", drawn.integers(vocab_size, size=tokens), dtype),
        _split(folder / "validation.bin", drawn.integers(vocab_size, size=tokens), dtype),
    )
    tokenizer = b"{}"
    (folder / TOKENIZER).write_bytes(tokenizer)
    manifest = Manifest(
        source=Source(title="random tokens", files=0, stamp="", text_sha256="", config={}),
        tokenizer="none",
        vocab_size=vocab_size,
        tokenizer_sha256=hashlib.sha256(tokenizer).hexdigest(),
        dtype=dtype,
        train=splits[0],
        validation=splits[1],
        digest=content_digest(vocab_size, dtype, splits),
    )
    (folder / MANIFEST).write_text(manifest.model_dump_json())
    return folder


def _split(path: Path, ids: npt.NDArray[np.int64], dtype: str) -> SplitRecord:
    content = ids.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    path.write_bytes(content)
    return SplitRecord(
        file=path.name,
        tokens=len(ids),
        text_bytes=len(ids),
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        edges_sha256=edges_sha256(path),
    )
