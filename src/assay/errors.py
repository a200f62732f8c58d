"""What a person can mend: each error is one sentence that says what is wrong and what to do."""

START_AGAIN = "remove the run and start again"
"""In the reason of a run that nobody can go on with."""


class UsageError(Exception):
    """Bad input. The command line prints its text and exits 2; nothing was written."""


class StorageError(Exception):
    """The disk refused: full, gone or not writable. The run ends as failed with this reason."""


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
