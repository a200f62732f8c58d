"""Reads a configuration's text, with limits on its length, depth and expanded size before anything is built from it.

A YAML text of a few lines can expand beyond any memory, because an alias repeats the content of its anchor. The
parser's events give the size without building the values. A file is read up to a limit, because a device such as
``/dev/zero`` never ends.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from assay.errors import UsageError, first_line

if TYPE_CHECKING:
    import yaml

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
