"""The tokenizer of a configuration, and the source of its vocabulary.

`bpe` is trained on the training text alone and cached under a digest of that text and the vocabulary size; the same
text gives the same merges. `gpt2` is searched for in `data.tokenizer_path`, then in the cache, then on the Hugging
Face hub. A download is stored in the cache. If the hub cannot be reached, its library retries for half a minute and
prints each attempt. The hub is therefore queried for the name first, once.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from assay.config import DataConfig, Home
from assay.config.base import absolute
from assay.config.run import KNOWN_VOCABULARIES
from assay.data.corpora import Corpus
from assay.data.progress import Progress, silent
from assay.data.tokenizers import ByteTokenizer, CharTokenizer, LibraryTokenizer, Tokenizer, from_json, pieces
from assay.errors import UsageError, first_line, suggestion
from assay.files import write_file

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
    except (OSError, ValueError, KeyError) as error:
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
