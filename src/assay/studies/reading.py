"""Read a study from a YAML file: its kind, and the fields of that kind."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.config.reading import parsed, read_text
from assay.errors import UsageError, meant, shown
from assay.studies.base import Study
from assay.studies.kinds import kinds

_EXPECTED = "no study: it must be a mapping with the key kind"


def read_study(path: Path) -> Study:
    """Return the study of a file. Raises `UsageError` with one sentence on the first fault."""
    values = _values(path)
    name = values.pop("kind", None)
    known = kinds()
    there = f"; there are {', '.join(known)}"
    if name is None:
        raise UsageError(f"{path} is no study: it has no key kind{there}")
    if not isinstance(name, str) or name not in known:
        hint = meant(str(name), list(known)) or there
        raise UsageError(f"{path} is no study: its key kind is {shown(name)}{hint}")
    try:
        return known[name].model_validate(values, strict=False)
    except ValidationError as error:
        finding = error.errors()[0]
        where = "".join(f"{one}: " for one in (".".join(map(str, finding["loc"])),) if one)
        text = finding["msg"].removeprefix("Value error, ")
        raise UsageError(f"{path}: {where}{text[:1].lower()}{text[1:]}") from error


def _values(path: Path) -> dict[str, Any]:
    import yaml

    try:
        text = read_text(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a YAML file of a study") from error
    values: dict[str, Any] | None = parsed(text, str(path), _EXPECTED, yaml.safe_load)
    if values is None or not all(isinstance(key, str) for key in values):
        raise UsageError(f"{path} is {_EXPECTED}")
    return values
