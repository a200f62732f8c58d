"""Tokenizers: text to ids and back, behind one small protocol.

`byte` is UTF-8 itself; `char` numbers the sorted set of characters of the corpus, as nanoGPT does; `LibraryTokenizer`
wraps any tokenizer.json of Hugging Face's `tokenizers` (GPT-2's, a byte-pair vocabulary trained here, or the user's
own). Each can be written as one JSON text, from which `from_json` restores it without the corpus.

The vocabulary size is the number of rows that an embedding needs. A byte-pair vocabulary trained on little text can
have fewer tokens than requested. Its size remains the requested one, and the last ids never occur. Ids without a
token, which an untrained model does sample, are decoded as U+FFFD or as nothing.

Long texts are encoded in pieces. This does not change the ids of characters, bytes and byte-level pairs. It might for
another tokenizer.json, so that one encodes the whole text at once, and needs memory for it.

A library's tokenizer replaces what it does not know by its unknown token, or drops it if it has none. A byte-level
vocabulary with all 256 bytes knows every text.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from assay.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Library

Ids = npt.NDArray[np.integer[Any]]
_BYTES = 256
_PIECE_CHARACTERS = 1 << 17
_PIECES_AT_ONCE = 16
_LAST_CODE_POINT = 0x10FFFF
_REPLACEMENT = "\ufffd"
_KEY = "assay_tokenizer"


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


class EncodedPiece(NamedTuple):
    """Ids of a part of a text."""

    ids: Ids
    characters: int
    """Number of characters that the ids encode."""
    unknown: int = 0
    """Number of unknown tokens among the ids, and of visible characters that got no token."""


class Tokenizer(Protocol):
    """Interface of all tokenizers."""

    @property
    def name(self) -> str:
        """Return `byte`, `char`, `bpe`, `gpt2` or the path from which it was read."""

    @property
    def vocab_size(self) -> int:
        """Return the vocabulary size; every id is smaller."""

    def encode(self, text: str) -> Ids:
        """Return the ids of a text, `[tokens]`, unsigned. Raises `UsageError` for a character without an id."""

    def encode_long(self, text: str) -> Iterator[EncodedPiece]:
        """Yield the ids of a text in pieces."""

    def decode(self, ids: Ids) -> str:
        """Return the text of ids, `[tokens]`; ids that are not text become U+FFFD or nothing."""

    def to_json(self) -> str:
        """Return the text from which `from_json` restores the tokenizer."""


class _CutAnywhere:
    """Tokenizer whose ids of a text do not depend on where the text is cut."""

    @abstractmethod
    def encode(self, text: str) -> Ids:
        """Return the ids of a text."""

    def encode_long(self, text: str) -> Iterator[EncodedPiece]:
        """Yield ids in pieces, cut between any characters."""
        for start in range(0, len(text), _PIECE_CHARACTERS):
            piece = text[start : start + _PIECE_CHARACTERS]
            yield EncodedPiece(self.encode(piece), len(piece))


class ByteTokenizer(_CutAnywhere):
    """UTF-8 bytes as ids: 256 ids for any text."""

    name = "byte"
    vocab_size = 256

    def encode(self, text: str) -> Ids:
        """Return one id per byte, uint8. Raises `UsageError` for half a surrogate pair."""
        return np.frombuffer(utf8(text), dtype=np.uint8)

    def decode(self, ids: Ids) -> str:
        """Return the text; bytes that are not UTF-8, and ids from 256 on, become U+FFFD."""
        # 0xFF occurs in no UTF-8 text, so it always decodes to the replacement.
        return np.where(np.asarray(ids) < 256, ids, 0xFF).astype(np.uint8).tobytes().decode(errors="replace")

    def to_json(self) -> str:
        """Return the name only."""
        return json.dumps({_KEY: self.name})


class CharTokenizer(_CutAnywhere):
    """One id per character of a given set, in the order of their code points."""

    name = "char"

    def __init__(self, characters: str) -> None:
        self.characters = "".join(sorted(set(characters)))

    @property
    def vocab_size(self) -> int:
        """Return the number of different characters."""
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
        """Return one id per character, uint32. Raises `UsageError` for a character that is not in the set."""
        ids = self._id_of_code[_code_points(text)]
        if ids.size and ids.min() < 0:
            unknown = text[int(np.argmax(ids < 0))]
            raise UsageError(
                f"the character {unknown!r} is not one of the {self.vocab_size} of this corpus's char tokenizer;"
                " leave it out, or train with data.tokenizer=byte"
            )
        return ids.astype(np.uint32)

    def decode(self, ids: Ids) -> str:
        """Return the text; ids beyond the set become U+FFFD."""
        codes = np.append(self._codes, np.uint32(ord(_REPLACEMENT)))
        known = np.minimum(np.asarray(ids, dtype=np.int64), self.vocab_size)
        return codes[known].astype("<u4").tobytes().decode("utf-32-le")

    def to_json(self) -> str:
        """Return the name and the characters."""
        return json.dumps({_KEY: self.name, "characters": self.characters})


_MOST_IDS = 2**24
"""Most ids of a tokenizer, many times those of any that is in use; the library writes a table with each number."""


class LibraryTokenizer:
    """A tokenizer of Hugging Face's `tokenizers`. Special tokens in a text are recognized, and none are added.

    Raises `ValueError` if its ids are too large.
    """

    def __init__(self, library: "Library", name: str, vocab_size: int | None = None) -> None:
        library.no_truncation()  # of a model's inputs, which would leave out the rest of a text
        library.no_padding()
        self._library = library
        self.name = name
        # Ids may have holes, and an embedding needs a row for each number up to the largest.
        self.vocab_size = vocab_size or 1 + max(library.get_vocab().values(), default=-1)
        if self.vocab_size > _MOST_IDS:
            raise ValueError(
                f"its largest id is {self.vocab_size - 1:,}, and an embedding needs a row for each number up to it; "
                "number its tokens without holes"
            )

    def encode(self, text: str) -> Ids:
        """Return the ids, uint32. Raises `UsageError` for half a surrogate pair, and for text that has no ids."""
        utf8(text)
        with self._known_text():
            return np.asarray(self._library.encode(text, add_special_tokens=False).ids, dtype=np.uint32)

    def encode_long(self, text: str) -> Iterator[EncodedPiece]:
        """Yield ids in pieces, cut where a byte-level tokenizer splits anyway; several are encoded in parallel."""
        cuts = pieces(text) if self._spelling.cuts_before_line_breaks else iter([text] if text else [])
        while batch := list(islice(cuts, _PIECES_AT_ONCE)):
            with self._known_text():
                encodings = self._library.encode_batch(batch, add_special_tokens=False)
            for piece, encoding in zip(batch, encodings, strict=True):
                ids = np.asarray(encoding.ids, dtype=np.uint32)
                yield EncodedPiece(ids, len(piece), self._spelling.unknown(piece, ids, encoding))

    @contextmanager
    def _known_text(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the library raises bare Exceptions
            raise UsageError(
                f"the tokenizer {self.name} has no id for a part of this text ({error}); choose another data.tokenizer"
            ) from error

    def decode(self, ids: Ids) -> str:
        """Return the text, with special tokens written out and unknown ids left out."""
        return self._library.decode([int(i) for i in ids], skip_special_tokens=False)

    def to_json(self) -> str:
        """Return the text of a tokenizer.json."""
        return self._library.to_str()

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling.of(json.loads(self.to_json()))


def from_json(text: str, name: str, vocab_size: int) -> Tokenizer:
    """Make a tokenizer from the text of `to_json`, or of any tokenizer.json. Raises `ValueError` for other text."""
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
    """Return the UTF-8 of a text. Raises `UsageError` for half a surrogate pair, as in undecodable arguments."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the text contains {text[error.start]!r}, which is not a character; write it in UTF-8"
        ) from None


def pieces(text: str) -> Iterator[str]:
    """Cut a text between a visible character and a line break, which no byte-level pair spans."""
    cut_here = re.compile(r"\S(?=\n)")
    start = 0
    while start < len(text):
        cut = cut_here.search(text, start + _PIECE_CHARACTERS)
        end = cut.end() if cut else len(text)
        yield text[start:end]
        start = end


def _code_points(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
