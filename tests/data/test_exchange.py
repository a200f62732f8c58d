"""An exported tokenizer is the same function: what transformers encodes and decodes is what we do."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.config import DataConfig, Home
from assay.data.exchange import exchange_files
from assay.data.preparation import make_tokenizer
from assay.data.sources import Corpus
from assay.data.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer

transformers = pytest.importorskip("transformers")

TEXT = "To be, or not to be:\nthat  is the \tquestion — ça va?\r\n 日本 🙂\x07 end"


def written(tokenizer: Tokenizer, folder: Path) -> "transformers.PreTrainedTokenizerFast":
    folder.mkdir(exist_ok=True)
    for name, content in exchange_files(tokenizer, 64).items():
        (folder / name).write_text(json.dumps(content))
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", ["byte", "char", "bpe"])
def test_auto_tokenizer_reads_what_was_trained_with(name: str, tmp_path: Path) -> None:
    config = DataConfig(path="x", tokenizer=name, bpe_vocab_size=300)
    ours = make_tokenizer(config, Corpus("text", TEXT * 5, TEXT), Home(tmp_path / "home"))
    theirs = written(ours, tmp_path / "out")
    ids = ours.encode(TEXT).tolist()
    assert theirs(TEXT)["input_ids"] == ids
    assert theirs.decode(ids) == TEXT
    assert theirs.model_max_length == 64


BYTES = exchange_files(ByteTokenizer(), 8)["tokenizer.json"]


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",))))
def test_bytes_are_bytes_whatever_the_text(text: str) -> None:
    from tokenizers import Tokenizer as Library

    library = Library.from_str(json.dumps(BYTES))
    ids = library.encode(text).ids
    assert ids == list(text.encode())
    assert library.decode(ids) == text


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)), min_size=1))
def test_characters_are_characters_whatever_they_are(text: str) -> None:
    from tokenizers import Tokenizer as Library

    ours = CharTokenizer(text)
    library = Library.from_str(json.dumps(exchange_files(ours, 8)["tokenizer.json"]))
    ids = library.encode(text).ids
    assert ids == ours.encode(text).tolist()
    assert library.decode(ids) == text


def test_a_character_outside_the_corpus_is_refused(tmp_path: Path) -> None:
    theirs = written(CharTokenizer("abc"), tmp_path / "out")
    with pytest.raises(Exception, match="UNK"):
        theirs("abd")


def test_an_end_of_text_is_told() -> None:
    class WithEnd(ByteTokenizer):
        def to_json(self) -> str:
            return json.dumps({"added_tokens": [{"content": "<|endoftext|>", "special": True}]})

    class Library:
        name, vocab_size = "gpt2", 1
        to_json = WithEnd().to_json

    settings = exchange_files(Library(), 8)["tokenizer_config.json"]  # type: ignore[arg-type]
    assert settings["eos_token"] == settings["bos_token"] == "<|endoftext|>"
