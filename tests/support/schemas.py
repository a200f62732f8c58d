"""Values against the published JSON schemas, by the library `jsonschema`."""

from functools import cache
from typing import Any

import jsonschema

from assay.api.schema import schema


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    """Return what checks values by a schema, which is one itself."""
    plain = schema(name).plain()
    jsonschema.Draft202012Validator.check_schema(plain)
    return jsonschema.Draft202012Validator(plain)


def faults(name: str, value: Any) -> list[str]:
    """Return a line on each part of a value that a schema refuses."""
    return [f"{one.json_path}: {one.message[:300]}" for one in validator(name).iter_errors(value)]
