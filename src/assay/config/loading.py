"""Builds a `Run` from user input: a preset or a file, then ``key=value`` overrides; a fault becomes one sentence.

OmegaConf merges and parses the values, and pydantic checks them. This file turns pydantic's findings into a sentence
that names the key, its fault, and the key that was probably meant.

A text has limits on its length, depth and expanded size before anything is built from it. A YAML text of a few lines
can expand beyond any memory, because an alias repeats the content of its anchor. The parser's events give the size
without building the values. A file is read up to a limit, because a device such as ``/dev/zero`` never ends.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from assay.config.fit import SHAPE
from assay.config.run import Run, Spec
from assay.errors import UsageError, first_line, short_text, suggestion

if TYPE_CHECKING:
    import yaml


_PATHS = ("data.path", "data.tokenizer", "data.tokenizer_path", "model.init_from")
"""Keys whose values are paths."""


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
        if not override.partition("=")[2].strip():
            raise UsageError(f"{override} has no value; leave it out, or write {override.strip()}null for none")
    preset = isinstance(source, str) and source in _presets()
    # A preset as it is needs no OmegaConf, whose import takes a fifth of the time of `assay estimate`.
    run = validate(_preset(str(source)) if preset and not overrides else _merged(source, overrides, preset))
    if not optimizations:
        return run
    return validate({**run.model_dump(exclude_unset=True), "optimizations": (*run.optimizations, *optimizations)})


def _merged(source: Run | str | Path | None, overrides: Sequence[str], preset: bool) -> Any:
    """Return the values of a source with overrides. Raises `UsageError`."""
    from omegaconf import OmegaConf

    base, overrides = _values_of(source, preset), list(map(_quoted, overrides))
    if preset and any(one.startswith("model.init_from=") for one in overrides):
        base = {**base, "model": {name: value for name, value in base["model"].items() if name not in SHAPE}}
    with one_sentence(f"the overrides {' '.join(overrides)}"):
        for override in overrides:
            check_size(override.partition("=")[2], short_text(override))
        changes = OmegaConf.from_dotlist(overrides)
        if isinstance(base, dict) and not any("${" in one for one in overrides):
            return _laid_over(base, OmegaConf.to_container(changes))
        return OmegaConf.to_container(OmegaConf.unsafe_merge(base, changes), resolve=True)  # both are used only here


def _quoted(override: str) -> str:
    """Return an override whose value is a path with quotes, unless it has them: YAML reads ``*.txt`` as an alias."""
    key, _, value = override.partition("=")
    if key.strip() not in _PATHS or not value.strip().startswith(("*", "[", "{", "&", "!", "%", "@")):
        return override
    return f"{key}={json.dumps(value.strip(), ensure_ascii=False)}"


def _values_of(source: Run | str | Path | None, preset: bool) -> Any:
    """Return values in which nothing is left to resolve as a dict, and those of a file as OmegaConf reads them."""
    if preset:
        return _preset(str(source))
    return source.model_dump(mode="json") if isinstance(source, Run) else _read(source)


def _laid_over(base: dict[str, Any], changes: Any) -> dict[str, Any]:
    """Return nested values with changes, as OmegaConf merges them in five times the time."""
    inside = {
        key: _laid_over(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in changes.items()
    }
    return base | inside


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
    if not name:
        raise UsageError(f"the name of a configuration is empty; name a YAML file or a preset ({', '.join(presets())})")
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


Parsed = TypeVar("Parsed")

LONGEST_BYTES = 1 << 20
_DEEPEST = 32
_MOST_NODES = 100_000


def read_text(path: Path) -> str:
    """Return the text of a configuration file, at most 1 MiB.

    Raises `UsageError` for a device, a longer file or a text that is not UTF-8, and `OSError`.
    """
    raw = read_bytes(path, LONGEST_BYTES)
    if raw is None:
        raise UsageError(f"{path} is longer than 1 MiB, so it is not a configuration{as_corpus(path)}")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 at byte {error.start}; write it in UTF-8{as_corpus(path)}") from error


def read_bytes(path: Path, most: int) -> bytes | None:
    """Return the content of a regular file or a pipe; None if it has more than `most` bytes.

    Raises `UsageError` for a device, and `OSError`.
    """
    if stat.S_ISCHR(kind := os.stat(path).st_mode) or stat.S_ISBLK(kind):
        raise UsageError(f"{path} is a device; name a file")
    with path.open("rb") as stream:
        raw = stream.read(most + 1)
    return raw if len(raw) <= most else None


def as_corpus(path: Path | str) -> str:
    """Hint for a file that looks like a text to train on; empty for a file with the suffix of a configuration."""
    if Path(path).suffix.lower() in (".yaml", ".yml", ".json") or not os.path.isfile(path):
        return ""
    return f"; to train on its text, write data.path={path}"


def check_size(text: str, what: str) -> None:
    """Raise `UsageError` if a YAML text nests too deeply or expands to too many values, and the parser's own errors."""
    import yaml

    sizes: list[tuple[str | None, int]] = [(None, 0)]
    anchored: dict[str, int] = {}
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        added = 1
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.append((event.anchor, 1))
            if len(sizes) > _DEEPEST:
                raise UsageError(f"{what} is nested deeper than {_DEEPEST} levels; use fewer levels")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, added = sizes.pop()
            if anchor is not None:
                anchored[anchor] = added
        elif isinstance(event, yaml.AliasEvent):
            added = anchored.get(event.anchor or "", 1)
        elif not isinstance(event, yaml.ScalarEvent):
            continue
        anchor, size = sizes.pop()
        sizes.append((anchor, size + added))
        if size + added > _MOST_NODES:
            raise UsageError(f"{what} has more than {_MOST_NODES} values; write fewer")


def parse_mapping(text: str, what: str, expected: str, parse: Callable[[str], Parsed]) -> Parsed:
    """Return the values of a YAML text, which `parse` builds once its size is checked and it is a mapping or empty.

    Raises `UsageError` with one sentence about `what`; `expected` ends it if the text is no mapping.
    """
    import yaml

    with one_sentence(what):
        check_size(text, what)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None and not isinstance(root, yaml.MappingNode):
            raise UsageError(f"{what} is {expected}")
        _check_keys(root, what)
        return parse(text)


def _check_keys(root: "yaml.Node | None", what: str) -> None:
    """Raise `UsageError` if a mapping has a key twice; the parser would silently keep the last."""
    import yaml

    nodes, seen = [root], set()
    while nodes:
        node = nodes.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes += node.value
            continue
        keys: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                line = key.start_mark.line + 1
                raise UsageError(f"{what} has the key {key.value!r} twice, again in line {line}; leave one of them out")
            keys.add(str(key.value))
            nodes.append(value)


@contextmanager
def one_sentence(what: str) -> Iterator[None]:
    """Turn errors of OmegaConf and its YAML parser into one sentence about `what`, with line and column if known."""
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        yield
    except YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise UsageError(f"{what} cannot be read as YAML{place}: {problem or first_line(error)}") from error
    except RecursionError as error:
        raise UsageError(f"{what} cannot be read: it is nested too deeply, or refers to itself") from error
    except (OmegaConfBaseException, ValueError, TypeError, AttributeError, LookupError, AssertionError) as error:
        raise UsageError(f"{what} cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """First line of a parser's error. Python's message on a huge integer is replaced, as it names a Python function."""
    line = first_line(error)
    return "an integer has more than 4,300 digits" if "integer string conversion" in line else line
