"""The text to train on, its tokenizer, and the part that is held out."""

import codecs
import io
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from assay.config.base import Setting
from assay.config.paths import PathText

KNOWN_VOCABULARIES = {"byte": 256, "gpt2": 50257}
"""Vocabulary sizes that are known before any text is read."""
CHARACTERS = {"shakespeare": 65}
"""Different characters of a published text, of which no part is left out: nanoGPT, data/shakespeare_char/readme.md."""

NEWER = ("evaluate_on", "encoding", "max_unknown")
"""Fields that runs of earlier versions lack: at their defaults they are no part of the identity of a run or folder."""


class DataConfig(Setting):
    """A corpus, a tokenizer and a split."""

    corpus: str = "stdlib"
    """`stdlib`, `shakespeare`, `wikitext-2`, or `files` to read `path`."""
    path: PathText | None = None
    """A text file, folder or glob; it implies `corpus: files`. Records are .jsonl, .json, .csv, .tsv, .parquet, .arrow
    and folders that `datasets` saved. Files may be compressed (.gz, .zst, .bz2, .xz)."""
    text_field: str = "text"
    """The field or column of records that holds the text."""
    encoding: str = "utf-8"
    """Encoding of text files, such as `latin-1` or `utf-16`."""
    tokenizer: PathText = "byte"
    """`char`, `byte`, `bpe` (trained on the corpus), `gpt2`, or the path of a tokenizer.json."""
    tokenizer_path: PathText | None = None
    """Folder with GPT-2's vocab.json and merges.txt. None: the hub's files, if it is reachable."""
    bpe_vocab_size: Annotated[int, Field(ge=257, le=16_777_216)] = 1024
    """Size of a byte-pair vocabulary trained on the corpus."""
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    """Share of the text, at its end, that is held out, unless the corpus has its own validation split."""
    evaluate_on: Literal["held-out", "validation", "test"] = "held-out"
    """Text whose loss is measured: all that is held out, or one of two parts. Choose settings by `validation`, and
    report their losses on `test`. `test` is the corpus's test split, or else the second half of the held-out text;
    `validation` is the rest."""
    max_bytes: PositiveInt | None = None
    """Most bytes of text to read, from the start. None: all of it."""
    max_unknown: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    """Most tokens that may be unknown to the tokenizer, by token; a text with more is refused."""

    @field_validator("encoding")
    @classmethod
    def _is_an_encoding_of_text(cls, value: str) -> str:
        try:
            io.TextIOWrapper(io.BytesIO(), encoding=value)
        except LookupError:
            raise ValueError(
                f"data.encoding={value} is no encoding that Python knows; write utf-8 or latin-1"
            ) from None
        return codecs.lookup(value).name

    @model_validator(mode="after")
    def _path_and_corpus_agree(self) -> Self:
        if self.corpus == "files" and self.path is None:
            raise ValueError("data.corpus=files needs data.path=FILE, FOLDER or GLOB")
        return self

    def newer_defaults(self) -> set[str]:
        """Return the names among `NEWER` that have their defaults."""
        return {name for name in NEWER if getattr(self, name) == type(self).model_fields[name].default}

    @property
    def known_vocabulary(self) -> int | None:
        """Size of the vocabulary, if it is known before any text is read."""
        if self.tokenizer == "char":
            return CHARACTERS.get(self.source) if self.max_bytes is None else None
        return {**KNOWN_VOCABULARIES, "bpe": self.bpe_vocab_size}.get(self.tokenizer)

    @property
    def source(self) -> str:
        """Corpus that is read: `files` if a path is given."""
        return "files" if self.path is not None else self.corpus
