"""The text to train on, its tokenizer, and the part that is held out."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from assay.config.base import Setting
from assay.config.paths import PathText

KNOWN_VOCABULARIES = {"byte": 256, "gpt2": 50257}
"""Vocabulary sizes that are known before any text is read."""


class DataConfig(Setting):
    """A corpus, a tokenizer and a split."""

    corpus: str = "stdlib"
    """`stdlib`, `shakespeare`, `wikitext-2`, or `files` to read `path`."""
    path: PathText | None = None
    """A text file, folder, glob, .jsonl or .parquet; it implies `corpus: files`."""
    text_field: str = "text"
    """The field of JSON Lines and Parquet records that holds the text."""
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

    @model_validator(mode="after")
    def _path_and_corpus_agree(self) -> Self:
        if self.corpus == "files" and self.path is None:
            raise ValueError("data.corpus=files needs data.path=FILE, FOLDER or GLOB")
        return self

    @property
    def source(self) -> str:
        """Corpus that is read: `files` if a path is given."""
        return "files" if self.path is not None else self.corpus
