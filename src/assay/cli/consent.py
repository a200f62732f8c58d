"""The question before code runs that an imported record names; without a terminal the answer is no."""

import sys

import typer

from assay.errors import UsageError


def ask_consent(error: BaseException) -> bool:
    """True if an error was the refusal of such code, and the user lets it run: then the verb can begin again."""
    if not isinstance(error, UsageError) or not sys.stdin.isatty():
        return False
    from assay.store.foreign import ForeignCode

    if not isinstance(error, ForeignCode):
        return False
    typer.confirm(f"An imported record names the function {error.code}. Let this file run?", abort=True, err=True)
    error.allow()
    return True
