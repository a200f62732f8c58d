"""Turn a configuration into a prepared folder: read, tokenize, write once, reuse while the source is unchanged.

The folder's name ends in a hash of the configuration. An existing folder is reused if its files match its manifest and
the source was not modified. If the source's sizes or times differ, it is read and compared by hash, and prepared anew
if it has changed. A damaged folder is an error for a run, which must not silently train on other data. A thorough
preparation (`assay data prepare`) repairs it.
"""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.config import DataConfig, Home
from assay.config.base import absolute
from assay.data.corpora import Corpus, list_corpus, read_corpus, stamp
from assay.data.prepared_folder import (
    FORMAT,
    MANIFEST,
    TOKENIZER,
    Manifest,
    Prepared,
    Source,
    SplitRecord,
    content_digest,
    dtype_for,
    edges_sha256,
    open_prepared,
    read_manifest,
)
from assay.data.progress import Progress, silent
from assay.data.tokenizers import Tokenizer
from assay.data.vocabularies import NAMES, make_tokenizer, tokenizer_files
from assay.errors import UsageError
from assay.files import new_folder, write_file


def prepare(config: DataConfig, home: Home, progress: Progress | None = None, *, thorough: bool = False) -> Prepared:
    """Open the shards of a configuration's corpus in the home; prepare them first if they are missing or outdated.

    `thorough` hashes shards of any size whole, and prepares a damaged folder anew instead of refusing it. Raises
    `UsageError` for an unusable source or tokenizer, `StorageError` if the disk cannot be written.
    """
    home.ready()
    tell = progress or silent
    notes: list[str] = []
    folder = folder_for(config, home)
    listing = list_corpus(config, home, tell)
    # Stamped before the text is read, so that a change in between is found at the next opening.
    now = stamp((*listing.files, *tokenizer_files(config, home, tell)))
    found = _found(folder, notes, thorough=thorough)
    if found is not None and found.manifest.source.stamp == now:
        return found
    tell(f"reading {listing.title}", None)
    corpus = read_corpus(listing, config, home)
    tokenizer = make_tokenizer(config, corpus, home, tell)
    source = Source(
        title=listing.title,
        files=len(listing.files),
        stamp=now,
        text_sha256=corpus.sha256,
        config=_canonical(config),
        remarks=corpus.remarks,
    )
    if found is not None:
        if _holds(found.manifest, source, tokenizer):
            renewed = found.manifest.model_copy(update={"source": source})
            write_file(folder / MANIFEST, _dump(renewed))
            return _told(replace(found, manifest=renewed), tell)
        notes.append(f"{listing.title}, or its tokenizer, has changed since it was prepared; it is prepared again")
    for note in notes:
        tell(note, None)
    _write(folder, source, corpus, tokenizer, tell, config.max_unknown)
    return _told(replace(open_prepared(folder), notes=tuple(notes)), tell)


def _told(prepared: Prepared, tell: Progress) -> Prepared:
    """Tell what of a corpus that was just read is left out, and return it."""
    for remark in prepared.manifest.remarks:
        tell(str(remark), None)
    return prepared


def folder_for(config: DataConfig, home: Home) -> Path:
    """Return the folder of a configuration's shards, named by corpus, tokenizer and a hash of all settings."""
    canonical = json.dumps([FORMAT, _canonical(config)], sort_keys=True, separators=(",", ":"))
    tokenizer = config.tokenizer if config.tokenizer in NAMES else "custom"
    return home.data / f"{config.source}-{tokenizer}-{hashlib.sha256(canonical.encode()).hexdigest()[:12]}"


def _canonical(config: DataConfig) -> dict[str, Any]:
    """Return plain values with absolute paths: a relative path means another file in another working directory."""
    values = config.model_dump(mode="json")
    for name in config.newer_defaults():
        del values[name]  # folders that were prepared before there was a choice keep their names
    if config.tokenizer not in NAMES:
        values["tokenizer"] = str(absolute(config.tokenizer))
    for key in ("path", "tokenizer_path"):
        values[key] = None if values[key] is None else str(absolute(values[key]))
    return values


def _found(folder: Path, notes: list[str], *, thorough: bool) -> Prepared | None:
    if not (folder / MANIFEST).exists():
        return None
    try:
        return open_prepared(folder, thorough=thorough)
    except UsageError as error:
        if not thorough:
            raise
        notes.append(f"{str(error).partition(';')[0]}; it is prepared again")
        return None


def _holds(manifest: Manifest, source: Source, tokenizer: Tokenizer) -> bool:
    same_tokenizer = manifest.tokenizer_sha256 == hashlib.sha256(tokenizer.to_json().encode()).hexdigest()
    same_text = manifest.source.text_sha256 == source.text_sha256
    counted = manifest.train.unknown is not None or tokenizer.name in NAMES
    return same_text and same_tokenizer and counted and manifest.vocab_size == tokenizer.vocab_size


def _write(
    folder: Path, source: Source, corpus: Corpus, tokenizer: Tokenizer, tell: Progress, max_unknown: float
) -> None:
    def same(other: Path) -> bool:
        """True if another process has meanwhile written the same content there, undamaged."""
        try:
            return _holds(read_manifest(other), source, tokenizer) and bool(open_prepared(other, thorough=True))
        except UsageError:
            return False

    dtype = dtype_for(tokenizer.vocab_size)
    written = tokenizer.to_json().encode()
    with new_folder(folder, same) as made:
        train = _write_shard(made / "train.bin", corpus.train, tokenizer, dtype, tell)
        validation = _write_shard(made / "validation.bin", corpus.validation, tokenizer, dtype, tell)
        _check_unknown((train, validation), tokenizer, max_unknown)
        (made / TOKENIZER).write_bytes(written)
        manifest = Manifest(
            source=source,
            tokenizer=tokenizer.name,
            vocab_size=tokenizer.vocab_size,
            tokenizer_sha256=hashlib.sha256(written).hexdigest(),
            dtype=dtype,
            train=train,
            validation=validation,
            digest=content_digest(tokenizer.vocab_size, dtype, (train, validation)),
        )
        write_file(made / MANIFEST, _dump(manifest))


def _write_shard(path: Path, text: str, tokenizer: Tokenizer, dtype: str, tell: Progress) -> SplitRecord:
    digest = hashlib.sha256()
    tokens = done = unknown = 0
    little_endian = np.dtype(dtype).newbyteorder("<")
    with path.open("wb") as stream:
        for piece in tokenizer.encode_long(text):
            raw = piece.ids.astype(little_endian).tobytes()
            stream.write(raw)
            digest.update(raw)
            tokens += len(piece.ids)
            done += piece.characters
            unknown += piece.unknown
            tell(f"tokenizing {path.stem}", done / len(text))
        stream.flush()
        os.fsync(stream.fileno())
    if not tokens:
        raise UsageError(f"the {path.stem} split has no tokens under the tokenizer {tokenizer.name}; use more text")
    return SplitRecord(
        file=path.name,
        tokens=tokens,
        text_bytes=len(text.encode()),
        size_bytes=path.stat().st_size,
        sha256=digest.hexdigest(),
        edges_sha256=edges_sha256(path),
        unknown=unknown,
    )


def _check_unknown(splits: tuple[SplitRecord, SplitRecord], tokenizer: Tokenizer, most: float) -> None:
    """Raise `UsageError` if a larger share of a split is unknown to the tokenizer than `most`."""
    for split in splits:
        if split.unknown_share > most:
            raise UsageError(
                f"the tokenizer {tokenizer.name} cannot spell this text: {split.unknown_share:.3g} of the tokens of"
                f" {split.file} are unknown, more than data.max_unknown={most:g}; choose another"
                " data.tokenizer, or raise the limit"
            )


def _dump(manifest: Manifest) -> bytes:
    return (json.dumps(manifest.model_dump(mode="json"), indent=1) + "\n").encode()
