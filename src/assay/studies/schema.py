"""The file of a study: its JSON schema for editors, and a commented file to start from.

The schema has the keys of every kind, at each scale. The commented file has every field with its meaning, and an
example of what the kind needs.
"""

import json
import shlex
import textwrap
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from assay.errors import StorageError, UsageError, among, short_text
from assay.files import write_file
from assay.records.json_schema import json_schema
from assay.studies.base import Study
from assay.studies.documents import documents
from assay.studies.kinds import kinds

_FROM_LIBRARY = {
    "type": "object",
    "properties": {
        "library": {"enum": documents(), "description": "Name of a published document in the library."},
        "repeats": {"type": "object", "additionalProperties": {"type": "string"}},
        "wrong": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["library"],
    "additionalProperties": False,
}


def study_schema() -> dict[str, Any]:
    """Return the schema of a file that any kind of study reads; the key `kind` decides which keys it has.

    Raises `UsageError` as `kinds`.
    """
    known, definitions = kinds(), dict[str, Any]()
    for name, kind in known.items():
        found = json_schema(kind, "validation")
        definitions |= found.pop("$defs", {})
        definitions[name] = _with_scales(name, found)
    chosen = [
        {"if": {"properties": {"kind": {"const": name}}, "required": ["kind"]}, "then": {"$ref": f"#/$defs/{name}"}}
        for name in known
    ]
    return {
        "type": "object",
        "properties": {"kind": {"enum": list(known), "description": "Kind of the study."}},
        "required": ["kind"],
        "allOf": chosen,
        "$defs": definitions,
    }


def _with_scales(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a kind with the keys that `read_study` takes before its model does."""
    own = found["properties"]
    own["published"] = {"anyOf": [_FROM_LIBRARY, own["published"]]}
    at_scale = {key: {"$ref": f"#/$defs/{name}/properties/{key}"} for key in own}
    scale = {"type": "object", "properties": at_scale, "additionalProperties": False}
    further = {
        "kind": {"const": name},
        "scales": {"type": "object", "additionalProperties": scale, "description": "Keys that each scale changes."},
    }
    return {**found, "properties": {**further, **own}}


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
