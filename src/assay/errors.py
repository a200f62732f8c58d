"""Errors that the user can correct: each is one sentence that names the fault and the remedy.

Texts from outside, such as those of an imported record, are made fit here to be shown.
"""

import os
import re
from collections.abc import Iterable, Sequence

LONGEST_SENTENCE = 500
"""Characters of a printed message."""

LONGEST_VALUE = 200
"""Characters of one value inside a message."""

START_AGAIN = "start a new run"
"""Part of the reason of a run that cannot be resumed."""

STANDS = "no step was trained, so the earlier result of the run stands"
"""End of the reason of a resume that changed nothing."""


class UsageError(Exception):
    """Bad input. The command line prints the message and exits with code 2; nothing was written."""


class Untrainable(UsageError):
    """A model of the user's own whose loss trains nothing."""


class ProcessKilled(RuntimeError):
    """A process that measures or traces was killed by a signal. The command line exits with code 3."""


class StorageError(Exception):
    """The disk refused: full, gone or not writable. The run fails with this reason."""


def short_text(value: object) -> str:
    """Return a value as text of at most 200 characters; a longer text loses its middle."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python refuses to print an integer of more than 4,300 digits
        return "a value that is too large to print"
    return _cut(text, LONGEST_VALUE)


def one_line(sentence: str) -> str:
    """Return a message as one printable line of at most 500 characters; each value in it is cut to 200."""
    line = " ".join(sentence.split())
    line = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
    line = _LONG_VALUE.sub(lambda found: _cut(found[0], LONGEST_VALUE), line)
    return _cut(line, LONGEST_SENTENCE)


def legible(text: str, most: int | None = None) -> str:
    """Return a text without characters that steer a terminal or turn its direction, and cut to `most` characters.

    Each of them becomes ``"�"``; line breaks and tabs stay.
    """
    cut = text if most is None or len(text) <= most else f"{text[: most - 1]}…"
    if cut.isprintable():
        return cut
    return "".join(one if one.isprintable() or one in "\n\t" else "�" for one in cut)


_LONG_VALUE = re.compile(
    rf"'[^']{{{LONGEST_VALUE - 1},}}'|\"[^\"]{{{LONGEST_VALUE - 1},}}\"|\S{{{LONGEST_VALUE + 1},}}"
)
"""A quoted text or a word that is longer than a value may be."""


def _cut(text: str, most: int) -> str:
    """Cut the middle of a long text, because its end often says what to do."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 3]} … {text[-end:]}"


def first_line(error: BaseException) -> str:
    """First line of an error's message, or the error's type if the message is empty."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def users_place(error: BaseException) -> str:
    """Return ``" (file.py, line 3)"`` of the user's code that an error came from last; empty if it came from none."""
    import sysconfig
    import traceback

    ours = (os.path.dirname(__file__), sysconfig.get_path("stdlib"), "<")
    every = traceback.extract_tb(error.__traceback__)
    places = [one for one in every if not one.filename.startswith(ours) and "site-packages" not in one.filename]
    return f" ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})" if places else ""


_NAMED = 3
"""Most words that a hint names."""


def count_faults(number: int) -> str:
    """Return the number of faults that a check of a file has found."""
    return "1 fault" if number == 1 else f"{number} faults"


def among(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, or ``"; there are …"`` if none is close."""
    names = list(known)
    return suggestion(word, names) or f"; there are {', '.join(names)}"


def suggestion(word: str, known: list[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, or ``""`` if none is close.

    Words that start with the typed text are preferred to all others; up to three are named. The prefix of a group
    (``training.``) does not count as similarity.
    """
    from difflib import get_close_matches

    typed = word.casefold()
    group = typed[: typed.rfind(".") + 1]
    if any(one.casefold().startswith(group) for one in known):
        typed = typed.removeprefix(group)
    folded = {one.casefold().removeprefix(group): one for one in known}
    begun = [one for one in folded if typed and one.startswith(typed)]
    cutoff = 0 if begun else 0.5
    close = begun if 0 < len(begun) <= _NAMED else get_close_matches(typed, begun or folded, 1, cutoff)
    return f"; did you mean {' or '.join(repr(folded[one]) for one in close)}?" if close else ""


def first_names(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return names in one text; of many, the first ones and the number of the others, if these are several."""
    if len(names) <= most + 1:
        return separator.join(names)
    return f"{separator.join(names[:most])} and {len(names) - most} others"
