"""A mutant: one technique with one bug in it, of a kind that a person could write and that leaves a plausible run.

Most mutants exchange a fragment of a function's source, so that each shows the bug as it would stand in the code. A
fragment that the source no longer has is an error: the mutant is then written anew. A late mutant is honest during the
first steps, where the first trace and the values are taken, and wrong afterwards. It may begin at a step of its own.
"""

import __future__

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest

LATE = 4
"""The first step in which a late mutant is wrong."""
LAST = LATE + 3
"""The last step of a run in which a late mutant is looked for."""

Break = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, eq=False)
class Mutant:
    """One wrong variant of a technique."""

    name: str
    says: str
    """What is wrong, in one sentence."""
    break_it: Break
    run: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the technique's small run: `model`, `training`, and `stack`, the optimizations."""
    gpu: bool = False
    """Whether only a CUDA device runs the technique."""
    late: bool = False
    """Whether it is honest before the step `LATE`."""


class Clock:
    """Which step a run is in, and the first one in which a late mutant is wrong."""

    def __init__(self, patch: pytest.MonkeyPatch, since: int = LATE) -> None:
        from assay.training import loop

        self.step, self.since, take = 0, since, loop.take

        def noting(step: Any, index: int, *others: Any) -> Any:
            self.step = index
            return take(step, index, *others)

        patch.setattr(loop, "take", noting)

    @property
    def late(self) -> bool:
        """Whether a late mutant is wrong now."""
        return self.step >= self.since


def rewritten(place: str, *changes: tuple[str, str], late: bool = False, since: int = LATE, **names: Any) -> Break:
    """Exchange fragments of the source of `module:function` or `module:Class.function`.

    `names` are added to what the new source may use. A late one is used from the step `since` on.
    """

    def break_it(patch: pytest.MonkeyPatch) -> None:
        owner, name = _owner(place)
        honest = inspect.getattr_static(owner, name)
        broken = _with_changes(honest, changes, place, names)
        patch.setattr(owner, name, _by_turns(honest, broken, Clock(patch, since)) if late else broken)

    return break_it


def replaced(place: str, value: Any, *, late: bool = False) -> Break:
    """Put `value` in the place of `module:name` or `module:Class.name`; a late one is a function."""

    def break_it(patch: pytest.MonkeyPatch) -> None:
        owner, name = _owner(place)
        honest = inspect.getattr_static(owner, name)
        patch.setattr(owner, name, _by_turns(honest, value, Clock(patch)) if late else value)

    return break_it


def applied(technique: str, change: Callable[..., Any], *, late: bool = False, since: int = LATE) -> Break:
    """Have `change` alter the program that the technique's `apply` returns.

    `change` takes the program and the run, and in a late mutant the clock, which it asks for itself.
    """

    def break_it(patch: pytest.MonkeyPatch) -> None:
        from assay.optimizations import catalogue

        kind = catalogue()[technique]
        honest, more = kind.apply, (Clock(patch, since),) if late else ()
        patch.setattr(kind, "apply", lambda self, program, run: change(honest(self, program, run), run, *more))

    return break_it


def together(*breaks: Break) -> Break:
    """Several places of one bug."""

    def break_it(patch: pytest.MonkeyPatch) -> None:
        for one in breaks:
            one(patch)

    return break_it


def _owner(place: str) -> tuple[Any, str]:
    module, _, path = place.partition(":")
    *classes, name = path.split(".")
    owner: Any = import_module(module)
    for one in classes:
        owner = getattr(owner, one)
    return owner, name


def _with_changes(honest: Any, changes: tuple[tuple[str, str], ...], place: str, names: Mapping[str, Any]) -> Any:
    plain = honest.fget if isinstance(honest, property) else getattr(honest, "__func__", honest)
    function: FunctionType = inspect.unwrap(plain)
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in changes:
        assert source.count(old) == 1, f"{place} has {old!r} {source.count(old)} times; write the mutant anew"
        source = source.replace(old, new)
    made: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag  # names of annotations need not be there
    code = compile(source, f"<{place}, changed>", "exec", flags=flags, dont_inherit=True)
    exec(code, {**function.__globals__, **names}, made)
    return made[function.__name__]


def _by_turns(honest: Any, broken: Any, clock: Clock) -> Any:
    def chosen(*given: Any, **named: Any) -> Any:
        return (broken if clock.late else honest)(*given, **named)

    return chosen
