"""Round trips on arbitrary text, pieces that change nothing, and vocabularies from every place."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.config import DataConfig, Home
from assay.data import tokenizers
from assay.data.preparation import make_tokenizer
from assay.data.sources import Corpus
from assay.data.tokenizers import ByteTokenizer, CharTokenizer, LibraryTokenizer, Tokenizer, from_json
from assay.errors import UsageError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
STORY = Corpus("story", "def f(x):\n    return x + 1\n\n\nThe cat sat on the mat.\n" * 50, "é")

_WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "[UNK]"}
"""A tokenizer's model without its token for unknown words."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    home = Home(tmp_path_factory.mktemp("home"))
    return make_tokenizer(DataConfig(tokenizer="bpe", bpe_vocab_size=300), STORY, home)


@given(TEXT)
def test_bytes_round_trip(text: str) -> None:
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert ids.tolist() == list(text.encode())
    assert tokenizer.decode(ids) == text


@given(TEXT, TEXT)
def test_characters_round_trip_in_the_order_of_code_points(text: str, more: str) -> None:
    tokenizer = CharTokenizer(text + more)
    again = from_json(tokenizer.to_json(), "char", tokenizer.vocab_size)
    assert tokenizer.characters == "".join(sorted(set(text + more)))
    assert [tokenizer.characters[i] for i in tokenizer.encode(text)] == list(text)
    assert again.decode(tokenizer.encode(text)) == text


@given(TEXT)
def test_pairs_round_trip(pairs: Tokenizer, text: str) -> None:
    ids = pairs.encode(text)
    assert ids.size == 0 or ids.max() < pairs.vocab_size
    assert pairs.decode(ids) == text
    assert from_json(pairs.to_json(), "bpe", 300).encode(text).tolist() == ids.tolist()


@given(st.text("ab \n\t'1é", max_size=200))
def test_pieces_change_no_token(pairs: Tokenizer, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "_PIECE_CHARACTERS", 7)
        patch.setattr(tokenizers, "_PIECES_AT_ONCE", 3)
        for tokenizer in (pairs, ByteTokenizer(), CharTokenizer(text)):
            parts = list(tokenizer.encode_long(text))
            assert [i for piece in parts for i in piece.ids.tolist()] == tokenizer.encode(text).tolist()
            assert sum(piece.characters for piece in parts) == len(text)


def test_an_unknown_character_is_named() -> None:
    with pytest.raises(UsageError, match="the character 'ß' is not one of the 3"):
        CharTokenizer("abc").encode("abßc")


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), CharTokenizer("abc")])
def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UsageError, match="udc80"):
        tokenizer.encode("a\udc80")


@pytest.mark.parametrize("encode", [lambda one, text: one.encode(text), lambda one, text: list(one.encode_long(text))])
def test_text_without_an_id_is_refused(encode: Callable[[Tokenizer, str], object]) -> None:
    """The library raises a bare exception if a word is unknown, and there is no token for such words."""
    words = json.dumps({"version": "1.0", "added_tokens": [], "model": _WORDS})
    with pytest.raises(UsageError, match="words has no id for a part of this text"):
        encode(from_json(words, "words", 2), "c")


def test_ids_that_name_nothing_still_decode(pairs: Tokenizer) -> None:
    assert ByteTokenizer().decode(np.array([97, 300, 98])) == "a\ufffdb"
    assert CharTokenizer("abc").decode(np.array([0, 7, 2])) == "a\ufffdc"
    assert pairs.decode(np.array([299_999])) == ""


def test_training_pairs_is_deterministic_and_cached(home: Home, tmp_path: Path, pairs: Tokenizer) -> None:
    config = DataConfig(tokenizer="bpe", bpe_vocab_size=300)
    said: list[str] = []
    first = make_tokenizer(config, STORY, home, lambda message, _: said.append(message))
    assert first.to_json() == pairs.to_json()
    cached = next((home.cache / "bpe").iterdir())
    make_tokenizer(config, STORY, home, lambda message, _: pytest.fail(message))
    cached.write_text("{")
    assert make_tokenizer(config, STORY, home).to_json() == pairs.to_json()
    assert len([message for message in said if message.startswith("training")]) == 1


def test_a_short_text_leaves_ids_unused(home: Home) -> None:
    said: list[str] = []
    corpus = Corpus("", "ab", "c")
    tokenizer = make_tokenizer(DataConfig(tokenizer="bpe"), corpus, home, lambda message, _: said.append(message))
    assert tokenizer.vocab_size == 1024
    assert "256 of 1024" in said[-1]


def test_gpt2_gives_the_known_ids(home: Home, shared: Callable[[str], Path]) -> None:
    config = DataConfig(tokenizer="gpt2", tokenizer_path=str(shared("gpt2")))
    tokenizer = make_tokenizer(config, STORY, home)
    assert (tokenizer.name, tokenizer.vocab_size) == ("gpt2", 50257)
    assert tokenizer.encode("Hello world").tolist() == [15496, 995]
    assert tokenizer.encode("a<|endoftext|>").tolist() == [64, 50256]
    (home.cache / "gpt2").mkdir()
    for name in ("vocab.json", "merges.txt"):
        (home.cache / "gpt2" / name).write_bytes((shared("gpt2") / name).read_bytes())
    cached = make_tokenizer(DataConfig(tokenizer="gpt2"), STORY, home)
    assert cached.decode(np.array([15496, 995])) == "Hello world"


def test_gpt2_gives_the_token_counts_that_nanogpt_prints(home: Home, shared: Callable[[str], Path]) -> None:
    config = DataConfig(tokenizer="gpt2", tokenizer_path=str(shared("gpt2")))
    tokenizer = make_tokenizer(config, STORY, home)
    text = shared("tinyshakespeare/input.txt").read_text()
    cut = int(0.9 * len(text))
    counts = [sum(len(piece.ids) for piece in tokenizer.encode_long(part)) for part in (text[:cut], text[cut:])]
    assert counts == [301_966, 36_059]


def test_gpt2_offline_names_both_remedies_and_asks_once(
    home: Home, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def offline(api: object, name: str, timeout: float) -> None:
        asked.append(name)
        raise OSError("no route to the hub")

    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda repository, name: None)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", offline)
    remedies = r"\(no route to the hub\); set data\.tokenizer_path .* put both into .*cache/gpt2"
    with pytest.raises(UsageError, match=remedies):
        make_tokenizer(DataConfig(tokenizer="gpt2"), STORY, home)
    assert asked == ["gpt2"]
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_is_not_gpt2s_is_refused(home: Home, tmp_path: Path) -> None:
    config = DataConfig(tokenizer="gpt2", tokenizer_path=str(tmp_path))
    with pytest.raises(UsageError, match=r"has no vocab\.json"):
        make_tokenizer(config, STORY, home)
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(UsageError, match="has 2 tokens, GPT-2's has 50257"):
        make_tokenizer(config, STORY, home)
    (tmp_path / "vocab.json").write_text("no")
    with pytest.raises(UsageError, match="not a byte-pair vocabulary"):
        make_tokenizer(config, STORY, home)


def test_any_tokenizer_json_serves(home: Home, tmp_path: Path, pairs: Tokenizer) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(pairs.to_json())
    for name in (str(path), str(tmp_path)):
        tokenizer = make_tokenizer(DataConfig(tokenizer=name), STORY, home)
        assert isinstance(tokenizer, LibraryTokenizer)
        assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat"
    path.write_text("{}")
    with pytest.raises(UsageError, match=r"is not a readable tokenizer\.json"):
        make_tokenizer(DataConfig(tokenizer=str(path)), STORY, home)
    with pytest.raises(UsageError, match="did you mean 'char'"):
        make_tokenizer(DataConfig(tokenizer="chars"), STORY, home)


def _saved(path: Path, model: dict[str, object], **parts: object) -> Tokenizer:
    content = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None}
    content |= {"pre_tokenizer": {"type": "Whitespace"}, "model": model, **parts}
    return from_json(json.dumps(content), str(path), 0)


def test_a_vocabulary_with_holes_is_as_large_as_its_largest_id(tmp_path: Path) -> None:
    words = {"type": "WordLevel", "vocab": {"a": 0, "b": 7}, "unk_token": "b"}
    tokenizer = _saved(tmp_path, words)
    assert tokenizer.vocab_size == 8
    assert max(tokenizer.encode("a b")) < tokenizer.vocab_size
    with pytest.raises(ValueError, match="its largest id is 4,000,000,000, and an embedding needs a row for each"):
        _saved(tmp_path, {**words, "vocab": {"a": 0, "b": 4_000_000_000}})


@pytest.mark.parametrize(
    ("model", "unknown"),
    [
        ({"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}, 2),
        ({"type": "BPE", "vocab": {"a": 0, "[": 1, "]": 2, "U": 3, "N": 4, "K": 5}, "merges": []}, 2),
        ({"type": "Unigram", "vocab": [["<u>", 0.0], ["a", -1.0]], "unk_id": 0}, 3),
    ],
    ids=["unknown-words", "dropped-characters", "unknown-pieces"],
)
def test_characters_that_a_tokenizer_cannot_spell_are_counted(
    model: dict[str, object], unknown: int, tmp_path: Path
) -> None:
    tokenizer = _saved(tmp_path, model, pre_tokenizer={"type": "WhitespaceSplit"})
    assert sum(piece.unknown for piece in tokenizer.encode_long("a é a ü [UNK]")) == unknown
    assert sum(piece.unknown for piece in tokenizer.encode_long("a a")) == 0


def test_a_vocabulary_of_all_bytes_knows_every_text(pairs: Tokenizer) -> None:
    assert sum(piece.unknown for piece in pairs.encode_long("é \u4e00 \x00 " * 9)) == 0


def test_limits_of_a_models_inputs_do_not_cut_or_pad_a_text(tmp_path: Path) -> None:
    cut = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 7}, "direction": "Right", "pad_id": 1, "pad_type_id": 0, "pad_token": "b"}
    tokenizer = _saved(tmp_path, _WORDS, truncation=cut, padding={**pad, "pad_to_multiple_of": None})
    assert tokenizer.encode("a a a").tolist() == [0, 0, 0]
    assert [piece.ids.tolist() for piece in tokenizer.encode_long("a a a")] == [[0, 0, 0]]
