"""The encoding that a byte order mark at the start of a file tells."""

import codecs

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # it begins as the mark of UTF-16 does
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def marked_encoding(start: bytes) -> str | None:
    """Return UTF-16 or UTF-32 if a file begins with its mark and goes on as such text; None if it does not.

    `start` may end within a character.
    """
    found = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    if found is None:
        return None
    try:
        text = codecs.getincrementaldecoder(found)().decode(start)
    except UnicodeError:
        return None
    return None if not text or "\0" in text else found
