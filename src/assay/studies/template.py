"""A commented file of a study to start from: every field with its meaning, and an example of what the kind needs."""

import json
import shlex
import textwrap
from pathlib import Path

from pydantic.fields import FieldInfo

from assay.errors import StorageError, UsageError, among, short_text
from assay.files import write_file
from assay.studies.base import Study
from assay.studies.kinds import kinds

_WIDTH = 100


def write_template(name: str, kind: str, folder: Path) -> Path:
    """Write ``NAME.yaml`` for a kind of study, and return its path.

    Raises `UsageError` for an unknown kind, for a name that is no file name, and if the file exists.
    """
    known = kinds()
    if kind not in known:
        hint = among(kind, known)
        raise UsageError(f"there is no kind of study {short_text(kind)}{hint}")
    if not name or name != Path(name).name or name.startswith(".") or not name.isprintable():
        raise UsageError(f"{short_text(name)} is no name of a study; give a file name without a folder")
    path = folder / f"{name.removesuffix('.yaml')}.yaml"
    if path.exists():
        raise UsageError(f"{path} exists; choose another name")
    try:
        write_file(path, template(path, known[kind]).encode())
    except StorageError as error:
        raise UsageError(str(error)) from None
    return path


def template(path: Path, kind: type[Study]) -> str:
    """Return the text of a file for one kind of study."""
    word = shlex.quote(str(path))
    lines = [f"# Edit this, look at it with `assay study plan {word}`, and run it with `assay study run {word}`."]
    lines += [*_comment((kind.__doc__ or "").split("\n\n")[0]), f"kind: {kind.kind}"]
    for name, field in kind.model_fields.items():
        lines += ["", *_comment(field.description or ""), _line(name, field, kind.example.get(name))]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(" ".join(text.split()).replace("``", "`"), _WIDTH)]


def _line(name: str, field: FieldInfo, example: str | None) -> str:
    """Return the line of one field: an example, or its default; a default of None is a comment."""
    if example is not None:
        return f"{name}: {example}" if not example.startswith("\n") else f"{name}:{example}"
    if field.is_required():
        return f"{name}:"
    value = field.get_default(call_default_factory=True)
    return f"# {name}:" if value is None else f"{name}: {json.dumps(value)}"  # which YAML reads, too
