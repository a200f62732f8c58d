"""Command lines and configuration files drawn at random: valid pieces, near misses, and what nobody would write.

A case is drawn from its number alone, so a failure is repeated by the number. Pieces are mostly right, because a line
whose first word is wrong never reaches the code behind it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

import click
import typer
import yaml

from assay.cli.main import app
from assay.config import Run, presets
from assay.config.loading import keys
from assay.optimizations import catalogue

COMMAND = typer.main.get_command(app)

NUMBERS = (
    "0", "1", "2", "3", "4", "8", "16", "-1", "0.5", "1e-3", "1e3", "1e999", "-1e999", ".inf", "-.inf", ".nan", "nan",
    "NaN", "Infinity", "64", "65", "2147483648", "9223372036854775807", "9223372036854775808", "1" * 40, "9" * 5000,
    "0x10", "0o17", "1_000", "1:30", "١٢", "1.", ".5", "+3", "--3", "1e", "5e-324", "1.7976931348623157e308",
)  # fmt: skip
WORDS = (
    *("", " ", "x", "true", "false", "null", "~", "yes", "None", "auto", "cpu", "cuda", "cosine", "constant", "rms"),
    *("post", "rotary", "swiglu", "gelu_tanh", "byte", "char", "bpe", "gpt2", "stdlib", "shakespeare", "files", "last"),
    *("corpus.txt", "small", "small/*.txt", "run.yaml", "no/such/file", "a" * 300, "é", "日本語", "🙂", "\u202e"),
    *("\x1b[31m", "\x07", "a\nb", "\t", "'", '"', "\\", "{", "}", "[", "]", "[[[[[[", "{a: {b: {c: 1}}}", "[1, two]"),
    *("*a", "&a 1", "!!python/object:os.system x", "!!int x", "? x", "- x", "# x", "a: b: c", "${seed}", "${nothing}"),
    *("${oc.env:HOME}", "${oc.decode:x}", "${", "%s%n", "=", "==", "a=b", ".", "..", "/", "~", "~nobody", "-", "--"),
    *("/dev/zero", "/dev/null", "/proc/self/mem", "2020-01-01"),
)


@dataclass(frozen=True)
class Case:
    """Words of a command line, and the text of the file `run.yaml` beside it."""

    words: tuple[str, ...]
    text: str | bytes


def case(number: int) -> Case:
    """The case with this number."""
    draw = random.Random(number)
    return Case(tuple(_line(draw)), _file(draw))


def _line(draw: random.Random) -> list[str]:
    path, command = _verb(draw)
    words = [*path]
    if "source" in {one.name for one in command.params} or path[-1:] == ["prepare"]:
        words += _configuration(draw)
    for parameter in command.params:
        words += _parameter(draw, parameter)
    if draw.random() < 0.03:
        words.insert(draw.randint(0, len(words)), _value(draw))
    if draw.random() < 0.03:
        draw.shuffle(words)
    return [word.replace("\0", "") for word in words]


def _verb(draw: random.Random) -> tuple[list[str], click.Command]:
    verbs = ["train"] * 8 + ["estimate"] * 8 + ["compare"] * 4 + ["anatomy"] * 2 + [*COMMAND.commands]
    name = draw.choice(verbs)
    path, command = [name], COMMAND.commands[name]
    if (inner := getattr(command, "commands", None)) and draw.random() < 0.95:
        name = draw.choice([*inner])
        path, command = [*path, name], inner[name]
    if draw.random() < 0.03:
        path[-1] = _near(draw, path[-1])
    return path, command


def _configuration(draw: random.Random) -> list[str]:
    source = draw.choice([*presets(), *["demo"] * 5, *["run.yaml"] * 5, None, None, _value(draw)])
    words = [] if source is None else [source]
    if draw.random() < 0.8:
        words.append("data.path=corpus.txt")
    return words + [_override(draw) for _ in range(draw.choice((0, 0, 1, 1, 1, 2, 3, 5)))]


def _override(draw: random.Random) -> str:
    key, kind = draw.choice([*_kinds().items()])
    value = _fitting(draw, kind)
    if draw.random() < 0.05:
        key = _near(draw, key)
    return draw.choice((f"{key}={value}",) * 50 + (key, f"{key}.x={_value(draw)}", f"{key}[0]=1", f"+{key}=1"))


def _parameter(draw: random.Random, parameter: click.Parameter) -> list[str]:
    if parameter.param_type_name == "argument":
        if parameter.name in ("source", "overrides", "words"):
            return []
        return [_value(draw) for _ in range(draw.choice((1, 1, 1, 1, 0, 2)))]
    if draw.random() > (0.5 if parameter.name == "with_" else 0.15):
        return []
    name = draw.choice(parameter.opts)
    if getattr(parameter, "is_flag", False):
        return [name]
    if parameter.name == "with_":
        return [word for _ in range(draw.choice((1, 1, 2))) for word in (name, _stack(draw))]
    value = str(draw.choice((1, 1, 2, 4, 8))) if draw.random() < 0.85 else _value(draw)
    return [name, value] if draw.random() < 0.9 else [f"{name}={value}"]


def _stack(draw: random.Random) -> str:
    return draw.choice(("+",) * 20 + ("++", " + ", ",")).join(
        _optimization(draw) for _ in range(draw.choice((1, 1, 1, 2, 3)))
    )


def _optimization(draw: random.Random) -> str:
    name, kind = draw.choice([*catalogue().items()])
    fields = [*kind.model_fields]
    if draw.random() < 0.04:
        name = _near(draw, name)
    if draw.random() < 0.5 or not fields:
        return name
    chosen = draw.sample(fields, min(len(fields), draw.choice((1, 1, 2))))
    given = [f"{field}={_fitting(draw, kind.model_fields[field].annotation)}" for field in chosen]
    return f"{name}:{','.join(given)}"


def _value(draw: random.Random) -> str:
    kinds: tuple[Callable[[], str], ...] = (
        lambda: str(draw.randint(0, 20)),
        lambda: str(draw.randint(0, 20)),
        lambda: draw.choice(NUMBERS),
        lambda: draw.choice(WORDS),
        lambda: f"{draw.choice(NUMBERS)}{draw.choice(WORDS)}",
        lambda: "".join(chr(draw.choice((draw.randint(1, 127), draw.randint(1, 0xD7FF)))) for _ in range(5)),
    )
    return draw.choice(kinds)()


@cache
def _kinds() -> dict[str, Any]:
    """The type of every key that an override may name."""
    kinds: dict[str, Any] = {}
    for key in keys():
        group, _, name = key.rpartition(".")
        owner = Run.model_fields[group].annotation if group else Run
        kinds[key] = owner.model_fields[name].annotation  # type: ignore[union-attr]
    return kinds


def _fitting(draw: random.Random, kind: Any) -> str:
    """Mostly a value that a field of this type can take."""
    if draw.random() < 0.12:
        return _value(draw)
    inner = next((one for one in get_args(kind) if one is not type(None)), kind) if kind is not None else kind
    if get_origin(kind) is Literal or get_origin(inner) is Literal:
        return str(draw.choice(get_args(kind if get_origin(kind) is Literal else inner)))
    if "bool" in str(kind):
        return draw.choice(("true", "false"))
    if "int" in str(kind):
        return str(draw.choice((1, 1, 2, 2, 4, 8, 64)))
    if "float" in str(kind):
        return draw.choice(("0", "0.1", "0.5", "1", "1e-4", "2"))
    return draw.choice(WORDS)


def _near(draw: random.Random, word: str) -> str:
    at = draw.randint(0, len(word))
    return draw.choice((word[:at], word[:at] + draw.choice("xy._-= ") + word[at:], word.upper(), word + "s"))


def _file(draw: random.Random) -> str | bytes:
    """A configuration as YAML, often damaged; now and then something that is none."""
    kind = draw.random()
    if kind < 0.05:
        return draw.randbytes(draw.randint(0, 200))
    if kind < 0.1:
        depth = draw.choice((10, 50, 800, 3000))
        return draw.choice(("[" * depth, "{a: " * depth + "1" + "}" * depth, "- " * depth, _value(draw)))
    text = str(yaml.safe_dump(_mapping(draw), allow_unicode=True))
    for _ in range(draw.choice((0, 0, 0, 0, 1, 3))):
        at = draw.randint(0, len(text))
        text = text[:at] + _value(draw) + text[at + draw.randint(0, 3) :]
    return text


def _mapping(draw: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"data": {"path": "corpus.txt"}}
    for _ in range(draw.choice((0, 1, 2, 4))):
        group, _, name = draw.choice(keys()).rpartition(".")
        inner = made.setdefault(group, {}) if group else made
        if isinstance(inner, dict):
            fitting = yaml.safe_load(_fitting_text(draw, f"{group}.{name}" if group else name))
            inner[name] = fitting if draw.random() < 0.7 else _plain(draw, 0)
    return made


def _fitting_text(draw: random.Random, key: str) -> str:
    """A value of a key that YAML can read."""
    text = _fitting(draw, _kinds()[key])
    try:
        yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return "1"
    return text


def _plain(draw: random.Random, depth: int) -> Any:
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: _value(draw).replace("\x00", ""),
        lambda: draw.randint(-2, 100),
        lambda: draw.choice((10**30, 2**63, 10**4000, float("inf"), float("nan"), -0.0, 1e-320, True, None)),
        lambda: [_plain(draw, depth + 1) for _ in range(draw.randint(0, 3))] if depth < 4 else [],
        lambda: {_value(draw): _plain(draw, depth + 1) for _ in range(draw.randint(0, 3))} if depth < 4 else {},
        lambda: [_optimization(draw)],
    )
    return draw.choice(kinds)()
