"""A factor of a study and its levels: values of one setting, named sets of changes, or placebos.

A level is a name, and what it changes in the base. Most levels are values of the factor's own key. A named level may
change several keys at once, such as the width and the depth of a model. A placebo changes nothing: its row runs the
control under another label, which shows what the study calls a difference where there is none.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from assay.config.run import Run
from assay.errors import short_text
from assay.records.study import PLACEBO, is_placebo

OPTIMIZATIONS = "optimizations"
NONE = "none"
"""Level of the factor `optimizations` that turns none on."""

ROLE, CONTEXT = "role", "context"
"""Key of a factor's role, and the one role that a file can give: the factor describes a case, and is no choice."""

_PLAIN = {"type": ["string", "number", "boolean", "null"]}
WRITTEN = {"anyOf": [_PLAIN, {"type": "array", "items": _PLAIN}]}
"""JSON schema of a value as a file writes it, which becomes the text of an override."""
_LISTED = {"type": "array", "items": {"anyOf": [*WRITTEN["anyOf"], {"type": "object", "required": [PLACEBO]}]}}
_NAMED = {
    "type": "object",
    "not": {"required": [ROLE]},
    "additionalProperties": {"anyOf": [*WRITTEN["anyOf"], {"type": "object", "additionalProperties": WRITTEN}]},
}
_WITH_ROLE = {
    "type": "object",
    "properties": {ROLE: {"const": CONTEXT}, "levels": {"anyOf": [_LISTED, _NAMED]}},
    "required": [ROLE, "levels"],
    "additionalProperties": False,
}
WRITTEN_LEVELS = {"anyOf": [_LISTED, _NAMED, _WITH_ROLE]}
"""JSON schema of the levels of a factor as a file writes them (`factor`)."""

Changes = Mapping[str, str]
"""Changes of a level: configuration keys and their values as texts of an override, and `optimizations`."""


class Factor(NamedTuple):
    """One thing that a study varies."""

    key: str
    """A configuration key such as `training.learning_rate`, `optimizations`, or a name if all its levels are named."""
    levels: tuple[str, ...]
    """Values of the key as they are written in an override, stacks such as ``"sdpa_attention+lion"``, or names."""
    changes: Mapping[str, Changes] = MappingProxyType({})
    """Changes of each named level. A level that is not listed is a value of `key`."""

    def at(self, level: str) -> Changes:
        """Return what a level changes."""
        return self.changes.get(level, {self.key: level})

    def setting(self, key: str) -> list[tuple[str, str]]:
        """Return the named levels that set a configuration key, and their values."""
        return [(level, changes[key]) for level, changes in self.changes.items() if key in changes]

    def is_placebo(self, level: str) -> bool:
        """True if a level changes nothing under a label of its own."""
        return is_placebo(level) and not self.at(level)


def factor(key: str, written: Any) -> Factor:
    """Return the factor of a key and its levels as a file writes them.

    A list has values, which may be lists themselves, and placebos as ``{placebo: LABEL}``. A mapping names its levels;
    each name has a value of the key, or a mapping of the keys that it changes. A factor with a role has either as
    ``{role: context, levels: …}``. Raises `ValueError` with one sentence for anything else.
    """
    if has_role(key, written):
        return factor(key, written["levels"])
    if isinstance(written, Mapping):
        named = {one_line(str(name)): _changes(key, change) for name, change in written.items()}
        return Factor(one_line(key), tuple(named), named)
    if not isinstance(written, list | tuple):
        raise ValueError(f"{key} has {short_text(written)}; give a list of its levels, or a mapping of named levels")
    found = [_listed(key, level) for level in written]
    return Factor(one_line(key), tuple(name for name, _ in found), {name: {} for name, placebo in found if placebo})


def has_role(key: str, written: Any) -> bool:
    """Return whether a file says that a factor is context. Raises `ValueError` for another role."""
    if not isinstance(written, Mapping) or ROLE not in written:
        return False
    if set(written) != {ROLE, "levels"}:
        raise ValueError(f"{key} has a role; give its levels beside it, as in {{{ROLE}: {CONTEXT}, levels: [1, 2]}}")
    if written[ROLE] != CONTEXT:
        raise ValueError(f"{key} has the role {short_text(written[ROLE])}; the one role is {CONTEXT}")
    return True


def text(value: Any) -> str:
    """Return a value of a YAML file as the text of an override; a list is ``[0,1]``."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(text, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def level_text(key: str, value: Any) -> str:
    """Return a level of a factor as the text of an override; a list of optimizations is their stack.

    Raises `ValueError` for a list with a mapping, or with another list.
    """
    if not isinstance(value, list | tuple):
        return text(value)
    if any(isinstance(one, Mapping | list | tuple) for one in value):
        raise ValueError(f"{key} has the level {short_text(value)}; a list as a level has plain values")
    return ("+".join(map(text, value)) or NONE) if key == OPTIMIZATIONS else text(value)


def one_line(name: str) -> str:
    """Return a name that tables and logs show as it is. Raises `ValueError` for one with other characters."""
    if not name.isprintable():
        raise ValueError(f"{short_text(name)} should be one line of printable characters")
    return name


def override_text(run: Run, key: str) -> str | None:
    """Return the value of a key of a configuration as the text of an override; None if there is no such key."""
    if key == OPTIMIZATIONS:
        return "+".join(map(str, run.optimizations)) or NONE
    value: Any = run
    for part in key.split("."):
        if not hasattr(value, "model_fields_set") or part not in type(value).model_fields:
            return None
        value = getattr(value, part)
    return text(value)


def merge_changes(changes: Iterable[Changes]) -> dict[str, str]:
    """Return the changes of several levels together; their optimizations are stacked in order.

    Raises `ValueError` if two levels change the same other key.
    """
    together: dict[str, str] = {}
    for one in changes:
        for key, value in one.items():
            if key == OPTIMIZATIONS:
                together[key] = "+".join(part for part in (together.get(key, NONE), value) if part != NONE) or NONE
            elif key in together:
                raise ValueError(f"two factors change {key}; let only one of them change it")
            else:
                together[key] = value
    return together


def _listed(key: str, level: Any) -> tuple[str, bool]:
    """Return the name of a listed level, and whether it is a placebo."""
    if isinstance(level, Mapping):
        if tuple(level) != (PLACEBO,):
            raise ValueError(
                f"{key} has the level {short_text(dict(level))}; a mapping in a list is {{placebo: LABEL}}"
            )
        return one_line(f"{PLACEBO}: {text(level[PLACEBO])}"), True
    return one_line(level_text(key, level)), False


def _changes(key: str, written: Any) -> Changes:
    """Return what a named level changes."""
    if not isinstance(written, Mapping):
        return {key: level_text(key, written)}
    for name, value in written.items():
        if isinstance(value, Mapping):
            raise ValueError(f"{key} sets {name} to {short_text(value)}; give one value")
    return {str(name): level_text(str(name), value) for name, value in written.items()}
