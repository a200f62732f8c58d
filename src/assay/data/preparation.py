"""Turn a configuration into a prepared folder: read, tokenize, write once, reuse while the source is unchanged.

The folder's name ends in a hash of the configuration. An existing folder is reused if its files match its manifest and
the source was not modified. If the source's sizes or times differ, it is read and compared by hash, and prepared anew
if it has changed. A damaged folder is an error for a run, which must not silently train on other data. A thorough
preparation (`assay data prepare`) repairs it.

The tokenizer is found or made here as well. `bpe` is trained on the training text alone. It is cached under a digest of
that text and the vocabulary size, so the same text gives the same merges. `gpt2` is searched for in
`data.tokenizer_path`, then in the cache, then on the Hugging Face hub. A download is stored in the cache. If the hub
cannot be reached, its library retries for half a minute and prints each attempt. The hub is therefore queried for the
name first, once.
"""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.config import DataConfig, Home
from assay.config.base import absolute
from assay.config.run import KNOWN_VOCABULARIES
from assay.data.corpora import list_corpus, stamp
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
from assay.data.sources import Corpus, read_corpus
from assay.data.tokenizers import ByteTokenizer, CharTokenizer, LibraryTokenizer, Tokenizer, from_json, pieces
from assay.errors import UsageError, first_line, suggestion
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


NAMES = ("char", "byte", "bpe", "gpt2")

_GPT2_FILES = ("vocab.json", "merges.txt")
_GPT2_END = "<|endoftext|>"
_PATIENCE_SECONDS = 10.0
_TRAINER = "byte-level-1"
"""Part of the cache key of trained vocabularies; it must change whenever their training changes."""


def make_tokenizer(config: DataConfig, corpus: Corpus, home: Home, progress: Progress = silent) -> Tokenizer:
    """Return the tokenizer of a configuration. Raises `UsageError` if it does not exist or cannot be fetched."""
    if config.tokenizer == "byte":
        return ByteTokenizer()
    if config.tokenizer == "char":
        return CharTokenizer("".join(set(corpus.train) | set(corpus.validation) | set(corpus.unread)))
    if config.tokenizer == "bpe":
        return _trained(corpus.train, config.bpe_vocab_size, home, progress)
    (first, *rest) = tokenizer_files(config, home, progress)
    if rest:
        return _gpt2(first, rest[0])
    return _read(first, config.tokenizer)


def tokenizer_files(config: DataConfig, home: Home, progress: Progress = silent) -> tuple[Path, ...]:
    """Return the files from which a tokenizer is read: none, a tokenizer.json, or GPT-2's vocabulary and merges.

    Raises `UsageError` if they do not exist or cannot be fetched.
    """
    if config.tokenizer == "gpt2":
        return _gpt2_files(config, home, progress)
    if config.tokenizer in NAMES:
        return ()
    path = absolute(config.tokenizer)
    path = path / "tokenizer.json" if os.path.isdir(path) else path
    if not os.path.isfile(path):
        hint = (
            suggestion(config.tokenizer, list(NAMES)) or f"; write {', '.join(NAMES)}, or the path of a tokenizer.json"
        )
        raise UsageError(f"there is no tokenizer {config.tokenizer!r}{hint}")
    return (path,)


def _read(path: Path, name: str) -> Tokenizer:
    try:
        tokenizer = from_json(path.read_text(encoding="utf-8"), name, 0)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error).split("\n")[0]
        raise UsageError(f"{path} is not a readable tokenizer.json: {reason}; write it again") from error
    if name == "gpt2" and tokenizer.vocab_size != KNOWN_VOCABULARIES["gpt2"]:
        raise UsageError(f"{path} has {tokenizer.vocab_size} tokens and is not GPT-2's tokenizer; delete or replace it")
    return tokenizer


def _trained(text: str, size: int, home: Home, progress: Progress) -> Tokenizer:
    key = hashlib.sha256(f"{_TRAINER}\0{size}\0".encode() + text.encode()).hexdigest()[:20]
    cached = home.cache / "bpe" / f"{key}-{size}.json"
    with suppress(OSError, ValueError):  # missing or damaged: train it anew
        return from_json(cached.read_text(encoding="utf-8"), "bpe", size)
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers, trainers

    progress(f"training a byte-pair vocabulary of {size} tokens", None)
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    library.train_from_iterator(pieces(text), trainer)
    found = library.get_vocab_size()
    if found < size:
        progress(f"the text has pairs for {found} of {size} tokens only; the other ids stay unused", None)
    write_file(cached, library.to_str().encode())
    return LibraryTokenizer(library, "bpe", size)


def _gpt2_files(config: DataConfig, home: Home, progress: Progress) -> tuple[Path, ...]:
    if config.tokenizer_path is not None:
        files = _in_folder(absolute(config.tokenizer_path))
        if not files:
            raise UsageError(
                f"{config.tokenizer_path} has no vocab.json with merges.txt;"
                " set data.tokenizer_path to the right folder"
            )
        return files
    return _in_folder(home.cache / "gpt2") or _from_hub(home.cache / "gpt2", progress)


def _in_folder(folder: Path) -> tuple[Path, ...]:
    for names in (_GPT2_FILES, ("tokenizer.json",)):
        if all(os.path.isfile(folder / name) for name in names):
            return tuple(folder / name for name in names)
    return ()


def _from_hub(folder: Path, progress: Progress) -> tuple[Path, ...]:
    progress("fetching GPT-2's tokenizer from the Hugging Face hub", None)
    try:
        content = _downloaded("gpt2", "tokenizer.json").read_bytes()
    except Exception as error:  # the type depends on the library's HTTP client
        raise UsageError(
            f"GPT-2's tokenizer could not be fetched from the Hugging Face hub ({first_line(error)}); set"
            f" data.tokenizer_path to a folder with vocab.json and merges.txt, or put both into {folder}"
        ) from error
    write_file(folder / "tokenizer.json", content)
    return (folder / "tokenizer.json",)


def _downloaded(repository: str, name: str) -> Path:
    """Return a file of the hub, from the library's own cache if possible. Raises any error of the hub's client."""
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

    cached = try_to_load_from_cache(repository, name)
    if isinstance(cached, str):
        return Path(cached)
    HfApi().model_info(repository, timeout=_PATIENCE_SECONDS)
    return Path(hf_hub_download(repository, name))


def _gpt2(vocabulary: Path, merges: Path) -> Tokenizer:
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    try:
        library = Library(models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:  # the library raises bare Exceptions
        raise UsageError(
            f"{vocabulary} and {merges.name} are not a byte-pair vocabulary: {str(error).split(chr(10))[0]};"
            " set data.tokenizer_path to the right folder"
        ) from error
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(_GPT2_END, special=True, normalized=False)])
    size = library.get_vocab_size()
    if size != KNOWN_VOCABULARIES["gpt2"]:
        raise UsageError(f"{vocabulary} has {size} tokens, GPT-2's has {KNOWN_VOCABULARIES['gpt2']}; replace it")
    return LibraryTokenizer(library, "gpt2")
