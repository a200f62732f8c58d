"""Read the texts of a corpus: one for training, and one held out.

The held-out part is the last `validation_fraction` of the characters, split off before tokenization, as in nanoGPT.
WikiText-2, and a folder with `train.txt` and `valid.txt` (or `validation`, `val`, `dev`), have a validation split of
their own, and perhaps a test split, `test.txt`. So does a data set that `datasets` saved with several splits.
`max_bytes` limits each text that is read: the whole text before it is split, or each of a corpus's own splits.

`data.evaluate_on` chooses the part of the held-out text that becomes the validation split of a prepared corpus. The
vocabulary is that of all parts, so that settings chosen on one part apply to the other.

A file's suffix decides how it is read, and `.gz`, `.zst`, `.bz2` or `.xz` behind it is decompressed. `.jsonl`, `.json`,
`.csv`, `.tsv`, `.parquet` and `.arrow` hold one document per record, in a field of a given name. Every other file is
one document, taken verbatim, and must be text in the given encoding without NUL bytes. What of a folder is not text is
left out and counted. A file that is named, or matched by a glob, must be text. Documents are joined; a line break is
inserted after one that does not end in one.

A data set that `datasets` saved with several splits has a folder for each. Its data are Arrow streams, which need
pyarrow and not `datasets`.
"""

import codecs
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.config import DataConfig, Home
from assay.data.compressed import RECORD_FORMS, form_of, marked_encoding, open_decompressed
from assay.data.corpora import CARRIAGE_RETURNS, IN_UTF8, MARKED, CorpusListing, Reason, Tally, in_parts
from assay.data.published import check
from assay.data.records import NoRecords, ReadingRules, record_texts
from assay.errors import UsageError
from assay.records.corpus import Remark

_BINARY = Reason("with NUL bytes, so no text")


def cut_utf8(raw: bytes, limit_bytes: int | None) -> bytes:
    """Return the first `limit_bytes` of UTF-8 text, without an incomplete character at the end."""
    if limit_bytes is None or len(raw) <= limit_bytes:
        return raw
    while limit_bytes and raw[limit_bytes] & 0xC0 == 0x80:
        limit_bytes -= 1
    return raw[:limit_bytes]


def join_documents(documents: Iterable[str], limit_bytes: int | None = None) -> str:
    """Join documents into one text of at most `limit_bytes` of UTF-8; no more documents are read than needed."""
    parts: list[str] = []
    size = 0
    for document in documents:
        if parts and parts[-1] and not parts[-1].endswith("\n"):
            document = "\n" + document
        parts.append(document)
        size += len(document.encode())
        if limit_bytes is not None and size >= limit_bytes:
            return cut_utf8("".join(parts).encode(), limit_bytes).decode()
    return "".join(parts)


def documents(paths: Iterable[Path], reading: ReadingRules, tally: Tally) -> Iterator[str]:
    """Yield the documents of files, in order; what is left out is added to the tally.

    Raises `UsageError` with the file's name if it cannot be read; a lenient reading leaves out files that are not text.
    """
    for path in paths:
        try:
            yield from _documents_of(path, reading, tally)
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror or error}); repair it or leave it out") from error


def _documents_of(path: Path, reading: ReadingRules, tally: Tally) -> Iterator[str]:
    if form_of(path) in RECORD_FORMS:
        try:
            yield from record_texts(path, reading, tally)
            return
        except NoRecords as error:
            if not reading.lenient:
                raise UsageError(
                    f"{path} has no records: {error}; name its text field in data.text_field, or rename it to .txt to"
                    " train on it as it is"
                ) from None
            tally.add(_syntax(path, reading), path, path.stat().st_size)
    if (text := _plain(path, reading, tally)) is not None:
        yield text


def _syntax(path: Path, reading: ReadingRules) -> Reason:
    return Reason(
        f"{form_of(path)} without records that have {reading.text_field!r}, read as plain text", "read as it is"
    )


def _plain(path: Path, reading: ReadingRules, tally: Tally) -> str | None:
    """Return a file's text; None if it is left out. Carriage returns and a byte order mark are kept, and counted."""
    limit, name = reading.limit_bytes, reading.encoding.upper()
    most = -1
    if limit is not None:  # a character has at most four bytes, and in UTF-8 a byte of text is one of the file
        most = 4 + (limit if reading.encoding == "utf-8" else 4 * limit)
    with open_decompressed(path) as stream:
        raw = stream.read(most)
    at = ""
    try:
        text = codecs.getincrementaldecoder(reading.encoding)().decode(raw, final=len(raw) != most)
        if "\0" not in text:
            _remark(text, path, tally)
            if not reading.encoding.startswith("utf") and _is_utf8(raw):
                tally.add(IN_UTF8, path, path.stat().st_size)
            return cut_utf8(text.encode(), limit).decode()
    except UnicodeError as error:
        at = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
    binary, marked = b"\0" in raw, marked_encoding(raw)
    if not reading.lenient:
        if marked:
            raise UsageError(f"{path} is {marked} by its byte order mark, not {name}; set data.encoding={marked}")
        fault = "it contains NUL bytes" if binary else f"it is not {name}{at}"
        raise UsageError(f"{path} is not text: {fault}; set data.encoding, or name another file")
    reason = _BINARY if binary else Reason(f"not {name}; data.encoding names another encoding")
    if marked:
        reason = Reason(f"{marked} by the byte order mark, not {name}; data.encoding={marked} reads it")
    tally.add(reason, path, path.stat().st_size)
    return None


def _is_utf8(raw: bytes) -> bool:
    """Return whether bytes beyond ASCII are valid UTF-8, as text in another encoding hardly ever is."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeError:
        return False
    return not raw.isascii()


def _remark(text: str, path: Path, tally: Tally) -> None:
    """Count a file whose line ends or first character other programs read in another way."""
    if "\r" in text:
        tally.add(CARRIAGE_RETURNS, path, path.stat().st_size)
    if text.startswith("\ufeff"):
        tally.add(MARKED, path, path.stat().st_size)


@dataclass(frozen=True)
class Corpus:
    """The training text and the validation text of a corpus; `unread` is held out as well, and is not evaluated on."""

    title: str
    train: str
    validation: str
    unread: str = ""
    remarks: tuple[Remark, ...] = ()
    """Parts of its files that are not read, or are read in a way that should be known."""

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the training text, a byte 0xFF, and the validation text, in UTF-8."""
        digest = hashlib.sha256(self.train.encode())
        digest.update(b"\xff")  # occurs in no UTF-8, so the digest depends on where the text is split
        digest.update(self.validation.encode())
        return digest.hexdigest()


def read_corpus(listing: CorpusListing, config: DataConfig, home: Home) -> Corpus:
    """Read the listed files and split off the held-out part.

    Raises `UsageError` if a file cannot be read as text, or if a split is empty.
    """
    if listing.published is not None:
        check(listing.published, home, tested=in_parts(config))
    tally = Tally()
    text = _read(listing.train, listing, config, tally)
    if not text:
        told = "".join(f"; {remark}" for remark in (*listing.remarks, *tally.remarks()))
        raise UsageError(f"{listing.title} contains no text; name another corpus in data.corpus or data.path{told}")
    if listing.validation is not None:
        train, held_out = text, _read(listing.validation, listing, config, tally)
    else:
        cut = int((1 - config.validation_fraction) * len(text))
        train, held_out = text[:cut], text[cut:]
    evaluated, unread = _part(held_out, listing, config, tally)
    for name, part in (("training", train), (config.evaluate_on, evaluated)):
        if not part and listing.validation and name != "training":
            raise UsageError(f"{listing.validation[0]} is held out and has no text; write some into it, or remove it")
        if not part:
            raise UsageError(
                f"the {name} split of {listing.title} has no text; use more text or another data.validation_fraction"
            )
    return Corpus(listing.title, train, evaluated, unread, (*listing.remarks, *tally.remarks()))


def _part(held_out: str, listing: CorpusListing, config: DataConfig, tally: Tally) -> tuple[str, str]:
    """Return the held-out text that is evaluated on, and the rest of it."""
    if not in_parts(config):
        return held_out, ""
    half = (len(held_out) + 1) // 2
    if listing.test:
        parts = (held_out, _read(listing.test, listing, config, tally))
    else:
        parts = (held_out[:half], held_out[half:])
    return parts if config.evaluate_on == "validation" else parts[::-1]


def _read(files: tuple[Path, ...], listing: CorpusListing, config: DataConfig, tally: Tally) -> str:
    limit = config.max_bytes
    reading = ReadingRules(config.text_field, config.encoding, listing.lenient, limit)
    return join_documents(documents(files, reading, tally), limit)
