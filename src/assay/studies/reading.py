"""Read a study from a YAML file: its kind, and the fields of that kind."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.config.reading import check_size, is_mapping, read_text
from assay.errors import UsageError, first_line, meant
from assay.studies.base import Study
from assay.studies.kinds import kinds


def read_study(path: Path) -> Study:
    """Return the study of a file. Raises `UsageError` with one sentence on the first fault."""
    values = _values(path)
    name = values.pop("kind", None)
    known = kinds()
    if name not in known:
        hint = meant(str(name), list(known)) or f"; there are {', '.join(known)}"
        raise UsageError(f"{path} is no study: its key kind is {name!r}{hint}")
    try:
        return known[name].model_validate(values, strict=False)
    except ValidationError as error:
        finding = error.errors()[0]
        where = ".".join(map(str, finding["loc"]))
        raise UsageError(f"{path}: {where}: {finding['msg'][:1].lower()}{finding['msg'][1:]}") from error


def _values(path: Path) -> dict[str, Any]:
    import yaml

    try:
        text = read_text(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a YAML file of a study") from error
    try:
        check_size(text, str(path))
        values = yaml.safe_load(text) if is_mapping(text) else None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as YAML: {first_line(error)}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UsageError(f"{path} is no study: it must be a mapping with the key kind")
    return values
