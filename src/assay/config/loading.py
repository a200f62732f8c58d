"""Builds a `Run` from user input: a preset or a file, then ``key=value`` overrides; a fault becomes one sentence.

OmegaConf merges and parses the values, and pydantic checks them. This file turns pydantic's findings into a sentence
that names the key, its fault, and the key that was probably meant.
"""

import os
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from assay.config.fit import SHAPE
from assay.config.run import Run, Spec
from assay.config.yaml_text import as_corpus, check_size, one_sentence, parse_mapping, read_text
from assay.errors import UsageError, first_line, short_text, suggestion


def presets() -> list[str]:
    """Names of the presets that ship with the package."""
    return list(_presets())


@cache
def _presets() -> tuple[str, ...]:
    """Names of the presets, which do not change while a program runs."""
    folder = resources.files("assay.config") / "presets"
    return tuple(sorted(one.name.removesuffix(".yaml") for one in folder.iterdir() if one.name.endswith(".yaml")))


def keys() -> list[str]:
    """Every key that an override may name, for example ``seed`` and ``training.steps``."""
    groups = {
        name: field.annotation
        for name, field in Run.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    inside = [f"{group}.{name}" for group, kind in groups.items() for name in kind.model_fields]
    return [*(name for name in Run.model_fields if name not in groups), *inside]


def load(
    source: Run | str | Path | None = None, overrides: Sequence[str] = (), optimizations: Sequence[Spec] = ()
) -> Run:
    """Return the run of a preset, a YAML file or a run, with ``key=value`` overrides and added optimizations.

    `optimizations` are appended to those of the source. An override of ``model.init_from`` drops the model shape of a
    preset. Raises `UsageError` with one sentence for an unknown preset, key or value, or a file that cannot be read.
    """
    for override in overrides:
        if not isinstance(override, str) or "=" not in override or override.startswith("="):
            raise UsageError(
                f"{short_text(override)} is not an override: write key=value, for instance training.steps=100"
            )
    preset = isinstance(source, str) and source in _presets()
    # A preset as it is needs no OmegaConf, whose import takes a fifth of the time of `assay estimate`.
    run = validate(_preset(str(source)) if preset and not overrides else _merged(source, overrides, preset))
    if not optimizations:
        return run
    return validate({**run.model_dump(exclude_unset=True), "optimizations": (*run.optimizations, *optimizations)})


def _merged(source: Run | str | Path | None, overrides: Sequence[str], preset: bool) -> Any:
    """Return the values of a source with overrides. Raises `UsageError`."""
    from omegaconf import OmegaConf

    if preset:
        base = OmegaConf.create(_preset(str(source)))
    else:
        base = OmegaConf.create(source.model_dump(mode="json")) if isinstance(source, Run) else _read(source)
    if preset and any(one.startswith("model.init_from=") for one in overrides):
        for name in SHAPE:
            base.get("model", {}).pop(name, None)
    with one_sentence(f"the overrides {' '.join(overrides)}"):
        for override in overrides:
            check_size(override.partition("=")[2], short_text(override))
        changes = OmegaConf.from_dotlist(list(overrides))
        return OmegaConf.to_container(OmegaConf.unsafe_merge(base, changes), resolve=True)  # both are used only here


@cache
def _preset(name: str) -> Any:
    """Return the values of a preset, which are not to be changed."""
    import yaml

    return yaml.safe_load((resources.files("assay.config") / "presets" / f"{name}.yaml").read_text(encoding="utf-8"))


def stack(listed: Sequence[str | Spec]) -> tuple[Spec, ...]:
    """Parse texts such as ``"sdpa_attention+bf16_mixed"`` and specs into single optimizations. Raises `UsageError`."""
    return validate({"optimizations": list(listed)}).optimizations


def validate(values: Any) -> Run:
    """Return a `Run` from plain nested values. Raises `UsageError` with one sentence on the first fault."""
    if not isinstance(values, dict):
        raise UsageError(
            "a configuration is a mapping with the keys model, data, training, seed, device, optimizations"
        )
    try:
        return Run.model_validate(values)
    except ValidationError as error:
        raise UsageError(_sentence(error)) from error
    except (RecursionError, OverflowError) as error:
        raise UsageError("the configuration has a value that is too large or nested too deeply") from error


def _read(source: str | Path | None) -> Any:
    """Return the mapping of a preset or a file. Raises `UsageError`; for a text file it says how to train on it."""
    from omegaconf import OmegaConf

    name, text = str(source or "the configuration"), _text(source)
    expected = "not a configuration: it must be a mapping with keys such as model and training"
    try:
        base = parse_mapping(text, name, expected, OmegaConf.create)
        if base and as_corpus(name) and not any(key in Run.model_fields for key in base):
            raise UsageError(f"{name} is not a configuration: it has none of the keys {', '.join(Run.model_fields)}")
    except UsageError as error:
        raise UsageError(f"{error}{as_corpus(name)}") from error
    return base


def _text(source: str | Path | None) -> str:
    if source is None:
        return "{}"
    name = str(source)
    path = Path(name)
    if os.path.isdir(path):
        raise UsageError(f"{name} is a folder; name a YAML file or a preset ({', '.join(presets())})")
    try:
        text = read_text(path)
    except FileNotFoundError:
        hint = suggestion(name, presets()) or f"; the presets are {', '.join(presets())}"
        raise UsageError(f"there is no preset or file named {short_text(name)}{hint}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UsageError(f"{short_text(name)} cannot be read as a file: {reason}") from error
    if not text.strip():
        raise UsageError(f"{name} is empty; write keys such as model and training, or {{}} for every default")
    return text


def _sentence(error: ValidationError) -> str:
    finding = error.errors()[0]
    place = [str(part) for part in finding["loc"]]
    key = ".".join(place)
    if finding["type"] == "extra_forbidden":
        return f"unknown key {key!r}{_meant_key(place)}"
    if finding["type"] == "value_error":
        return str(finding["ctx"]["error"]) if "ctx" in finding else finding["msg"]
    message = finding["msg"].removeprefix("Input ").removeprefix("Value error, ")
    if finding["type"] == "model_type":
        message = "should be a mapping of keys"
    return f"{key}={short_text(finding['input'])} is not possible: it {message}"


def _meant_key(place: list[str]) -> str:
    """Hint for a wrong key: the key of this name in another group, else the closest name or all names in this group."""
    siblings: type[BaseModel] = Run
    for part in place[:-1]:
        annotation = siblings.model_fields[part].annotation if part in siblings.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ""
        siblings = annotation
    everywhere = {key.partition(".")[2]: key for key in keys() if "." in key}
    if place[-1] in everywhere:
        return f"; did you mean {everywhere[place[-1]]!r}?"
    near = suggestion(".".join(place), [".".join((*place[:-1], name)) for name in siblings.model_fields])
    return near or f"; the keys here are {', '.join(siblings.model_fields)}"
