"""What a person can mend: each error is one sentence that says what is wrong and what to do."""

import re

LONGEST_SENTENCE = 500
"""Characters of a printed message."""

LONGEST_VALUE = 200
"""Characters of one value inside a message."""

START_AGAIN = "remove the run and start again"
"""In the reason of a run that nobody can go on with."""


class UsageError(Exception):
    """Bad input. The command line prints its text and exits 2; nothing was written."""


class StorageError(Exception):
    """The disk refused: full, gone or not writable. The run ends as failed with this reason."""


def shown(value: object) -> str:
    """Return a value as text of at most 200 characters; a long one loses its middle."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python refuses to print an integer of more than 4,300 digits
        return "a value that is too large to print"
    return _cut(text, LONGEST_VALUE)


def one_line(sentence: str) -> str:
    """Return a message as one printable line of at most 500 characters; values in it are cut to 200."""
    line = " ".join(sentence.split())
    line = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
    line = _LONG_VALUE.sub(lambda found: _cut(found[0], LONGEST_VALUE), line)
    return _cut(line, LONGEST_SENTENCE)


_LONG_VALUE = re.compile(
    rf"'[^']{{{LONGEST_VALUE - 1},}}'|\"[^\"]{{{LONGEST_VALUE - 1},}}\"|\S{{{LONGEST_VALUE + 1},}}"
)
"""A quoted text or a word that is longer than a value may be."""


def _cut(text: str, most: int) -> str:
    """Leave out the middle of a long text: its end often says what to do."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 3]} … {text[-end:]}"


def first_line(error: BaseException) -> str:
    """What an error says, as far as its first line; its kind where it says nothing."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def meant(word: str, known: list[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known word, or ``""`` when none is close.

    A word that begins as what was typed is closer than all that do not. What names of one group have in common
    (``training.``) makes none of them closer.
    """
    from difflib import get_close_matches

    typed = word.casefold()
    group = typed[: typed.rfind(".") + 1]
    if any(one.casefold().startswith(group) for one in known):
        typed = typed.removeprefix(group)
    folded = {one.casefold().removeprefix(group): one for one in known}
    begun = [one for one in folded if typed and one.startswith(typed)]
    close = get_close_matches(typed, begun or folded, n=1, cutoff=0 if begun else 0.5)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""
