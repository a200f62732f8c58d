"""Base classes of the configuration models, which are frozen, strict about types, and closed to unknown keys.

A path is a text of the user's, with ``~`` for the home directory.
"""

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

_LARGEST_INTEGER = 2**63 - 1


class Frozen(BaseModel):
    """An immutable value that compares by content and rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=(), defer_build=True)


def build_models(of: type[Frozen] = Frozen) -> None:
    """Build the validator of every imported model, which it would otherwise build at its first use."""
    for kind in of.__subclasses__():
        kind.model_rebuild(raise_errors=False)
        build_models(kind)


class Setting(Frozen):
    """Values that a user may choose; every number is finite, and every integer has at most 64 bits."""

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _fits_64_bits(cls, value: Any) -> Any:
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise PydanticCustomError("too_large", "should be at most 2^63")
        return value


def absolute(path: str | Path) -> Path:
    """Return the absolute path of a user's text; an unknown ``~user`` is left unchanged."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a path cannot contain a NUL character")
    return text


PathText = Annotated[str, AfterValidator(_without_nul)]
"""A path in a configuration; it cannot contain a NUL character."""
