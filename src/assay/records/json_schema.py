"""JSON schemas of types: of records by their models, and of other values by typed dictionaries.

A key that a record of an earlier version lacks has a default, so no schema requires it. A closed object stays closed:
no key is written that its schema lacks.
"""

from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from assay.config.base import attribute_docs

_NO_NUMBER: dict[str, JsonSchemaValue] = {
    "null": {"type": "null"},
    "strings": {"enum": ["Infinity", "-Infinity", "NaN"]},
}
"""Values in the place of numbers that JSON cannot write, by the setting of a model."""
_NUMBER_AS_TEXT = {"type": "string", "pattern": r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"}
"""Text that is read as a number, such as 1e-4, which YAML 1.1 reads as a text."""


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, with values in the place of ∞, texts of fields, and no titles, which repeat the keys."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Say nothing of a default that JSON cannot write, because no reader needs it."""

    def float_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a number, or of a value in its place."""
        number, config = super().float_schema(schema), self._config.config_dict
        if self.mode == "validation":
            return {"anyOf": [number, _NUMBER_AS_TEXT]}
        other = _NO_NUMBER.get(config.get("ser_json_inf_nan", "null"))
        return number if other is None or config.get("allow_inf_nan") is False else {"anyOf": [number, other]}

    def model_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a model, with the texts of its fields."""
        return _described(super().model_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a typed dictionary, which is closed, with the texts of its keys."""
        found = _described(super().typed_dict_schema(schema), schema["cls"])
        return {**found, "additionalProperties": False}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return false: a key needs no title."""
        return False

    def ser_schema(self, schema: Any) -> JsonSchemaValue | None:
        """Return the schema of what a serializer writes; a wrapped one only leaves out keys."""
        return None if schema.get("type") == "function-wrap" else super().ser_schema(schema)


def _described(found: JsonSchemaValue, kind: type[Any]) -> JsonSchemaValue:
    """Return an object's schema in which each key has the text below its field."""
    texts: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.startswith("assay."):
            texts |= attribute_docs(one)
    own = {
        name: value if "description" in value or name not in texts else {**value, "description": _line(texts[name])}
        for name, value in found.get("properties", {}).items()
    }
    return {**found, "properties": own} if own else found


def _line(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def json_schema(of: Any, mode: Literal["validation", "serialization"] = "serialization") -> dict[str, Any]:
    """Return the JSON schema of a type as it is written, or with `validation` as it is read."""
    return TypeAdapter(of).json_schema(mode=mode, schema_generator=_Generator)
