"""Options that a verb uses only beside another one: an option that would be ignored is refused in a sentence."""

from collections.abc import Collection, Mapping
from typing import Any

from assay.errors import UsageError

Uses = Mapping[str, Collection[str]]
"""Options by the mode that uses them. A mode is the option that chooses it, and empty if none is given."""


def given_options(options: Mapping[str, object]) -> list[str]:
    """Return the names of the options that are given: their value is not None, False or empty of words."""
    return [name for name, value in options.items() if value is not None and value is not False and value != []]


def arguments(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the named options that are given, as arguments of a function."""
    return {name.strip("-").replace("-", "_"): options[name] for name in names if options[name] is not None}


def only_one(modes: Collection[str]) -> str:
    """Return the mode that is given, empty if none is. Raises `UsageError` if there are several."""
    first, *others = [*modes] or [""]
    if others:
        raise UsageError(f"{first} and {others[0]} ask two questions; give only one of them")
    return first


def check_used(mode: str, uses: Uses, options: Mapping[str, object]) -> None:
    """Raise `UsageError` if an option is given that some mode uses, and this one does not."""
    for name in given_options(options):
        owners = [one for one, used in uses.items() if name in used]
        if mode in owners or not owners:
            continue
        if "" in owners:
            raise UsageError(f"{name} is not used with {mode}; give only one of them")
        raise UsageError(f"{name} is used with {' or '.join(owners)} only; leave it out, or give that")


def check_place(device: str | None, *words: str | None) -> None:
    """Raise `UsageError` if --device names a GPU, and one of the words of a configuration another kind of device."""
    for one in filter(None, words):
        key, _, value = one.partition("=")
        if device is not None and key == "device" and value not in ("cuda", "auto"):
            raise UsageError(f"{one} and --device {device} both say where the step runs; give only one of them")
