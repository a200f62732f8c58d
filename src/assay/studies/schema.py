"""The JSON schema of a study's YAML file, for editors: the keys of every kind, at each scale."""

from typing import Any

from assay.records.json_schema import json_schema
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
