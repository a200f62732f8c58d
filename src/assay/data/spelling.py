"""Texts that a tokenizer of Hugging Face's `tokenizers` can spell, read from its tokenizer.json.

A tokenizer replaces what it does not know by its unknown token, or drops it if it has none. A byte-level vocabulary
with all 256 bytes knows every text.
"""

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tokenizers import Encoding

Ids = npt.NDArray[np.integer[Any]]
_BYTES = 256


class Spelling(NamedTuple):
    """A tokenizer's way to cut a text, and to replace or drop characters that it lacks."""

    cuts_before_line_breaks: bool
    """True if it is plain byte level, whose regex never joins a visible character with a following line break."""
    unknown_id: int | None
    """Id of the token for what it does not know; None if it has none."""
    unknown_text: str
    may_drop: bool
    """True if it may leave characters without a token."""

    @classmethod
    def of(cls, content: dict[str, Any]) -> Self:
        """Read the content of a tokenizer.json."""
        model = content["model"]
        vocabulary = _vocabulary(model)
        text = model.get("unk_token") or _at(vocabulary, model.get("unk_id"))
        every = _knows_every_byte(content, vocabulary)
        identifier = None if every else vocabulary.get(text)
        may_drop = model.get("type") == "BPE" and identifier is None and not every
        return cls(_cuts_before_line_breaks(content), identifier, text, may_drop)

    def unknown(self, text: str, ids: Ids, encoding: "Encoding") -> int:
        """Return the number of tokens of a text that stand for something unknown, and of visible characters dropped.

        `ids` are those of `encoding`, `[tokens]`. The unknown token that the text itself spells does not count.
        """
        if self.unknown_id is not None:
            return max(0, int(np.count_nonzero(ids == self.unknown_id)) - text.count(self.unknown_text))
        return _dropped(text, encoding) if self.may_drop else 0


def _dropped(text: str, encoding: "Encoding") -> int:
    changes = np.zeros(len(text) + 1, dtype=np.int64)
    offsets = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    np.add.at(changes, offsets[:, 0], 1)
    np.add.at(changes, offsets[:, 1], -1)
    bare = np.flatnonzero(np.cumsum(changes)[:-1] == 0)
    return sum(not text[place].isspace() for place in bare)


def _vocabulary(model: dict[str, Any]) -> dict[str, int]:
    found = model.get("vocab") or {}
    return found if isinstance(found, dict) else {str(entry[0]): number for number, entry in enumerate(found)}


def _at(vocabulary: dict[str, int], number: int | None) -> str:
    return next((text for text, one in vocabulary.items() if one == number), "")


def _knows_every_byte(content: dict[str, Any], vocabulary: dict[str, int]) -> bool:
    if content["model"].get("byte_fallback"):
        return all(f"<0x{byte:02X}>" in vocabulary for byte in range(_BYTES))
    parts = json.dumps([content.get("normalizer"), content.get("pre_tokenizer")])
    if '"ByteLevel"' not in parts:
        return False
    from tokenizers.pre_tokenizers import ByteLevel

    return all(sign in vocabulary for sign in ByteLevel.alphabet())


def _cuts_before_line_breaks(content: dict[str, Any]) -> bool:
    cutter = content.get("pre_tokenizer") or {}
    plain = cutter.get("type") == "ByteLevel" and not cutter.get("add_prefix_space") and cutter.get("use_regex", True)
    return bool(plain) and content.get("normalizer") is None and not any(map(_reaches_over, content["added_tokens"]))


def _reaches_over(added_token: dict[str, Any]) -> bool:
    strips = bool(added_token.get("lstrip") or added_token.get("rstrip"))
    return strips or any(character.isspace() for character in added_token["content"])
