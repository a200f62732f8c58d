"""Export assay's tokenizers as Hugging Face files: `tokenizer.json` and `tokenizer_config.json`.

Every tokenizer has an exact equivalent there. The byte tokenizer is a byte-pair model with 256 entries and no merges,
after GPT-2's byte-level alphabet. The character tokenizer is a word-level model whose words are single characters. It
has no unknown token, so both refuse a character outside the corpus. Others are library tokenizers already.
"""

import json
from typing import Any

from assay.data.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer

_ANY_CHARACTER = r"[\s\S]"
_ENDS = ("<|endoftext|>", "</s>")
"""Special tokens that can end a text; the first one that a tokenizer has is used."""


def exchange_files(tokenizer: Tokenizer, context_length: int) -> dict[str, dict[str, Any]]:
    """Return the JSON files of a tokenizer, by file name, in the form that transformers' `AutoTokenizer` reads."""
    content = json.loads(_library_json(tokenizer))
    special = {token["content"] for token in content.get("added_tokens", ()) if token.get("special")}
    end = next((one for one in _ENDS if one in special), None)
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
    }
    if end is not None:
        settings |= dict.fromkeys(("bos_token", "eos_token", "unk_token"), end)
    return {"tokenizer.json": content, "tokenizer_config.json": settings}


def _library_json(tokenizer: Tokenizer) -> str:
    if isinstance(tokenizer, ByteTokenizer):
        return _bytes()
    if isinstance(tokenizer, CharTokenizer):
        return _characters(tokenizer.characters)
    return tokenizer.to_json()


def _bytes() -> str:
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    library = Library(models.BPE(vocab={sign: byte for byte, sign in enumerate(_byte_signs())}, merges=[]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    return str(library.to_str())


def _byte_signs() -> list[str]:
    """Return GPT-2's printable character for each byte: itself if printable, else the next free one from 256."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)]


def _characters(characters: str) -> str:
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    library = Library(models.WordLevel(vocab={one: number for number, one in enumerate(characters)}))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(_ANY_CHARACTER), "isolated")
    library.decoder = decoders.Fuse()
    return str(library.to_str())
