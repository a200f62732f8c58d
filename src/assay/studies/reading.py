"""Read a study from a YAML file: its kind, the fields of that kind, and its scales.

A scale is a shape of the study for another machine or another budget, under a name in the mapping `scales`. Its fields
replace those of the file, with two exceptions. Its overrides follow those of the file, and its mappings are merged with
theirs key by key. The file without any of them is the scale `full`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.config.loading import parse_mapping, read_text
from assay.errors import UsageError, among, short_text, suggestion
from assay.studies.base import Study
from assay.studies.documents import with_published
from assay.studies.kinds import kinds

FULL = "full"
"""Name of the scale that changes nothing."""
_EXPECTED = "no study: it must be a mapping with the key kind"


def read_study(path: Path, scale: str = FULL, overrides: Sequence[str] = ()) -> Study:
    """Return the study of a file at one scale, with further overrides of its base.

    Raises `UsageError` with one sentence on the first fault.
    """
    values = _values(path)
    values = _at_scale(path, values, _scales(path, values), scale)
    values.setdefault("name", path.stem if scale == FULL else f"{path.stem} ({scale})")
    name = values.pop("kind", None)
    known = kinds()
    there = f"; there are {', '.join(known)} (ASSAY_EXTENSIONS names the folder of your own)"
    if name is None:
        raise UsageError(f"{path} is no study: it has no key kind{there}")
    if not isinstance(name, str) or name not in known:
        hint = suggestion(str(name), list(known)) or there
        raise UsageError(f"{path} is no study: its key kind is {short_text(name)}{hint}")
    try:
        if "published" in values:
            values["published"] = with_published(values["published"])
        study = known[name].model_validate(values, strict=False)
    except ValidationError as error:
        finding = error.errors()[0]
        if finding["type"] == "extra_forbidden" and len(finding["loc"]) == 1:
            raise UsageError(f"{path}: {_unknown(values, known[name])}") from error
        place = ".".join(str(part) for part in finding["loc"] if "[" not in str(part))  # without pydantic's own names
        where = f"{place}: " if place else ""
        text = finding["msg"].removeprefix("Value error, ")
        if finding["type"] == "string_type" and isinstance(finding["input"], int | float):
            text = f"{finding['input']} is not read as a text; write it in quotes"
        raise UsageError(f"{path}: {where}{text[:1].lower()}{text[1:]}") from error
    except ValueError as error:
        raise UsageError(f"{path}: published: {error}") from error
    return study.model_copy(update={"overrides": (*study.overrides, *overrides)})


def _unknown(values: Mapping[str, Any], kind: type[Study]) -> str:
    """Return a sentence on all keys of a file that a kind of study does not have."""
    fields = list(kind.model_fields)
    unknown = [key for key in values if key not in fields]
    if len(unknown) == 1:
        return f"there is no key {unknown[0]!r} in a study of the kind {kind.kind}{among(unknown[0], fields)}"
    named = (f"{key!r}{suggestion(key, fields).replace('; ', ', ')}" for key in unknown)
    return f"a study of the kind {kind.kind} lacks these keys: {' '.join(named)}"


def scales(path: Path) -> list[str]:
    """Return the names of a file's scales, the full one first. Raises `UsageError` as `read_study`."""
    return [FULL, *_scales(path, _values(path))]


def _scales(path: Path, values: dict[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Remove the scales from the values of a file, and return them."""
    found = values.pop("scales", None) or {}
    if not isinstance(found, Mapping) or not all(isinstance(one, Mapping) for one in found.values()):
        raise UsageError(f"{path}: scales should be a mapping of names, each with the fields that it changes")
    if FULL in found:
        raise UsageError(f"{path}: scales has {FULL!r}, which is the file without a scale; give it another name")
    return {str(name): one for name, one in found.items()}


def _at_scale(path: Path, values: dict[str, Any], known: Mapping[str, Mapping[str, Any]], scale: str) -> dict[str, Any]:
    """Return the values of a file at one of its scales."""
    if scale == FULL:
        return values
    if scale not in known:
        hint = among(scale, [FULL, *known])
        raise UsageError(f"{path} has no scale {short_text(scale)}{hint}")
    changed = dict(values)
    for field, value in known[scale].items():
        before = changed.get(field)
        if field == "overrides" and isinstance(before, list) and isinstance(value, list):
            value = [*before, *value]
        elif isinstance(before, Mapping) and isinstance(value, Mapping):
            value = {**before, **value}
        changed[field] = value
    return changed


def _values(path: Path) -> dict[str, Any]:
    import yaml

    try:
        text = read_text(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a YAML file of a study") from error
    values: dict[str, Any] | None = parse_mapping(text, str(path), _EXPECTED, yaml.safe_load)
    if values is None or not all(isinstance(key, str) for key in values):
        raise UsageError(f"{path} is {_EXPECTED}")
    return values
