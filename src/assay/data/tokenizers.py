"""Text to ids and back, behind one small protocol.

`byte` is UTF-8 itself; `char` numbers the sorted set of characters of the corpus, as nanoGPT does; `LibraryTokenizer`
wraps any tokenizer.json of Hugging Face's `tokenizers` (GPT-2's, a byte-pair vocabulary trained here, or one that the
user brings). Each writes itself as one JSON text, from which `from_json` makes it again without the corpus.

A vocabulary size is the number of rows that an embedding needs. Trained on little text, a byte-pair vocabulary can
have fewer tokens than it was asked for; the size stays what was asked, and the last ids never occur. Decoding answers
ids that name nothing, which an untrained model does sample, with U+FFFD or nothing.

Long texts are encoded in pieces. For characters, bytes and byte-level pairs this changes nothing; whether it would
change something for another tokenizer.json is not known from outside, so that one gets its text whole, and needs
memory for it.
"""

import json
import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from assay.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

Ids = npt.NDArray[np.integer[Any]]

_PIECE_CHARACTERS = 1 << 17
_PIECES_AT_ONCE = 16
_LAST_CODE_POINT = 0x10FFFF
_REPLACEMENT = "\ufffd"
_KEY = "assay_tokenizer"


class Tokenizer(Protocol):
    """What the rest of the package needs of a tokenizer."""

    @property
    def name(self) -> str:
        """`byte`, `char`, `bpe`, `gpt2` or the path that it was read from."""

    @property
    def vocab_size(self) -> int:
        """Every id lies below it."""

    def encode(self, text: str) -> Ids:
        """Ids of a text, [tokens], unsigned. Raises `UsageError` for a character without an id."""

    def encode_long(self, text: str) -> Iterator[tuple[Ids, int]]:
        """The same ids in pieces, each with the number of characters that it stands for."""

    def decode(self, ids: Ids) -> str:
        """Text of ids, [tokens]; what is no text becomes U+FFFD."""

    def to_json(self) -> str:
        """What `from_json` needs to make it again."""


class ByteTokenizer:
    """UTF-8: 256 ids, any text."""

    name = "byte"
    vocab_size = 256

    def encode(self, text: str) -> Ids:
        """One id per byte, uint8."""
        return np.frombuffer(utf8(text), dtype=np.uint8)

    def encode_long(self, text: str) -> Iterator[tuple[Ids, int]]:
        """In pieces cut anywhere."""
        for start in range(0, len(text), _PIECE_CHARACTERS):
            piece = text[start : start + _PIECE_CHARACTERS]
            yield self.encode(piece), len(piece)

    def decode(self, ids: Ids) -> str:
        """Bytes that are no UTF-8, and ids that are no byte, become U+FFFD."""
        # 0xFF occurs in no UTF-8 text, so it always decodes to the replacement.
        return np.where(np.asarray(ids) < 256, ids, 0xFF).astype(np.uint8).tobytes().decode(errors="replace")

    def to_json(self) -> str:
        """Nothing but its name."""
        return json.dumps({_KEY: self.name})


class CharTokenizer:
    """One id per character of a given set, in the order of their code points."""

    name = "char"

    def __init__(self, characters: str) -> None:
        self.characters = "".join(sorted(set(characters)))

    @property
    def vocab_size(self) -> int:
        """Number of different characters."""
        return len(self.characters)

    @cached_property
    def _codes(self) -> npt.NDArray[np.uint32]:
        return _code_points(self.characters)

    @cached_property
    def _id_of_code(self) -> npt.NDArray[np.int32]:
        table = np.full(_LAST_CODE_POINT + 1, -1, dtype=np.int32)
        table[self._codes] = np.arange(self.vocab_size, dtype=np.int32)
        return table

    def encode(self, text: str) -> Ids:
        """One id per character, uint32. Raises `UsageError` naming a character that is not in the set."""
        ids = self._id_of_code[_code_points(text)]
        if ids.size and ids.min() < 0:
            unknown = text[int(np.argmax(ids < 0))]
            raise UsageError(
                f"the character {unknown!r} is not among the {self.vocab_size} that this corpus's char tokenizer knows;"
                " leave it out, or train with data.tokenizer=byte"
            )
        return ids.astype(np.uint32)

    def encode_long(self, text: str) -> Iterator[tuple[Ids, int]]:
        """In pieces cut anywhere."""
        for start in range(0, len(text), _PIECE_CHARACTERS):
            piece = text[start : start + _PIECE_CHARACTERS]
            yield self.encode(piece), len(piece)

    def decode(self, ids: Ids) -> str:
        """Ids beyond the set become U+FFFD."""
        codes = np.append(self._codes, np.uint32(ord(_REPLACEMENT)))
        known = np.minimum(np.asarray(ids, dtype=np.int64), self.vocab_size)
        return codes[known].astype("<u4").tobytes().decode("utf-32-le")

    def to_json(self) -> str:
        """The characters."""
        return json.dumps({_KEY: self.name, "characters": self.characters})


class LibraryTokenizer:
    """A tokenizer of Hugging Face's `tokenizers`; special tokens in a text count as such, and none are added."""

    def __init__(self, library: "Library", name: str, vocab_size: int | None = None) -> None:
        self._library = library
        self.name = name
        self.vocab_size = vocab_size or library.get_vocab_size()

    def encode(self, text: str) -> Ids:
        """Ids, uint32."""
        utf8(text)
        return np.asarray(self._library.encode(text, add_special_tokens=False).ids, dtype=np.uint32)

    def encode_long(self, text: str) -> Iterator[tuple[Ids, int]]:
        """In pieces cut where a byte-level tokenizer cuts too, several encoded at once."""
        cuts = pieces(text) if self._cuts_before_line_breaks else iter([text] if text else [])
        while batch := list(islice(cuts, _PIECES_AT_ONCE)):
            encodings = self._library.encode_batch(batch, add_special_tokens=False)
            for piece, encoding in zip(batch, encodings, strict=True):
                yield np.asarray(encoding.ids, dtype=np.uint32), len(piece)

    def decode(self, ids: Ids) -> str:
        """Special tokens are written out; unknown ids vanish."""
        return self._library.decode([int(i) for i in ids], skip_special_tokens=False)

    def to_json(self) -> str:
        """A tokenizer.json."""
        return self._library.to_str()

    @property
    def _cuts_before_line_breaks(self) -> bool:
        """Whether it is plain byte level: its expression never joins a letter with a following line break."""
        made = json.loads(self.to_json())
        cutter = made.get("pre_tokenizer") or {}
        plain = (
            cutter.get("type") == "ByteLevel" and not cutter.get("add_prefix_space") and cutter.get("use_regex", True)
        )
        return bool(plain) and made.get("normalizer") is None and not any(map(_reaches_over, made["added_tokens"]))


def from_json(text: str, name: str, vocab_size: int) -> Tokenizer:
    """A tokenizer from what `to_json` gave, or from any tokenizer.json. Raises `ValueError` for anything else."""
    content = json.loads(text)
    kind = content.get(_KEY) if isinstance(content, dict) else None
    if kind == ByteTokenizer.name:
        return ByteTokenizer()
    if kind == CharTokenizer.name:
        return CharTokenizer(content["characters"])
    from tokenizers import Tokenizer as Library

    try:
        return LibraryTokenizer(Library.from_str(text), name, vocab_size or None)
    except Exception as error:  # the library raises bare Exceptions
        raise ValueError(str(error).split("\n")[0]) from error


def utf8(text: str) -> bytes:
    """UTF-8 of a text. Raises `UsageError` for half a surrogate pair, as undecodable arguments bring them."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the text holds {text[error.start]!r}, which is no character; write it in UTF-8") from None


def pieces(text: str) -> Iterator[str]:
    """Cut between a visible character and a line break: no byte-level pair reaches over that place."""
    cut_here = re.compile(r"\S(?=\n)")
    start = 0
    while start < len(text):
        cut = cut_here.search(text, start + _PIECE_CHARACTERS)
        end = cut.end() if cut else len(text)
        yield text[start:end]
        start = end


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _reaches_over(added_token: dict[str, Any]) -> bool:
    strips = bool(added_token.get("lstrip") or added_token.get("rstrip"))
    return strips or any(character.isspace() for character in added_token["content"])
