"""The page of all keys of a configuration, from the models that read it: type, default, meaning with its unit."""

import json
import types
import typing
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from assay.config.base import attribute_docs
from assay.config.model import ModelConfig
from assay.config.run import DataConfig, Run, TrainingConfig

HEAD = """# Configuration

A configuration is a YAML file, or a preset, with overrides on the command line:

```yaml
model: {n_layer: 4, n_embd: 128}
training: {steps: 500}
optimizations: [sdpa_attention, bf16_mixed]
```

```
assay train my.yaml model.n_layer=8 data.path=input.txt --with fused_adamw
```

Overrides win over the file, and the file over the defaults below. An unknown key is an error that names the nearest
one. Sizes are in tokens, sequences or bytes, and times in seconds, as each line says. The fields of optimizations are
in [their cards](optimizations.md), and those of studies in [Studies](studies.md).
"""
_SECTIONS = {"": Run, "model.": ModelConfig, "data.": DataConfig, "training.": TrainingConfig}
_BOUNDS = {Gt: ("gt", "> {}"), Ge: ("ge", "≥ {}"), Lt: ("lt", "< {}"), Le: ("le", "≤ {}")}


def configuration() -> str:
    """Return the page, with a table for each part of a configuration."""
    text = HEAD
    for prefix, model in _SECTIONS.items():
        text += f"\n## {prefix.removesuffix('.') or 'The run'}\n\n| key | type | default | meaning |\n"
        text += "| --- | --- | --- | --- |\n"
        texts = attribute_docs(model)
        for name, field in model.model_fields.items():
            if f"{name}." not in _SECTIONS:
                cells = (f"`{prefix}{name}`", _type(field), _default(field), " ".join(texts[name].split()))
                text += f"| {' | '.join(one.replace('|', '/') for one in cells)} |\n"
    return text


def _type(field: FieldInfo) -> str:
    return ", ".join([_named(field.annotation), *_limits(field.metadata)])


def _named(annotation: Any) -> str:
    """Return a type in words: `integer`, or the allowed values."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return ", ".join([_named(parts[0]), *_limits(parts[1:])])
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in parts)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_named(one) for one in parts if one is not type(None))
    if origin is tuple:
        first, *limits = _named(parts[0]).split(", ")
        return ", ".join([f"list of {first}s", *limits])
    return {int: "integer", float: "number", str: "text", bool: "true or false"}.get(annotation, "optimization")


def _limits(metadata: Any) -> list[str]:
    flat = [limit for one in metadata for limit in (one.metadata if isinstance(one, FieldInfo) else (one,))]
    return [
        words.format(_plain(getattr(one, name)))
        for one in flat
        for kind, (name, words) in _BOUNDS.items()
        if isinstance(one, kind)
    ]


def _plain(bound: float) -> str:
    return f"2^{bound.bit_length() - 1}" if isinstance(bound, int) and bound >= 2**31 else f"{bound:,.10g}"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    return "none" if value == () else f"`{json.dumps(value) if not isinstance(value, str) else value}`"
