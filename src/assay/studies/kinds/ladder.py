"""A ladder: optimizations and settings turned on one after the other, in an order.

Each step from one rung to the next shows what a change adds to all before it. What a change is worth depends on its
place, so the ladder may also be left out of order: `leave_one_out` takes each rung away from the top, and `add_one`
turns each on alone. The three answers differ where changes interact.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator

from assay.errors import short_text
from assay.studies.base import Study
from assay.studies.factors import OPTIMIZATIONS, Factor, one_line, text

_OFF, _ON = "off", "on"


class Ladder(Study):
    """The control, then rung after rung on top of it."""

    kind: ClassVar[str] = "ladder"
    example: ClassVar[Mapping[str, str]] = {"rungs": "[sdpa_attention, bf16_mixed, training.batch_size=24]"}

    rungs: tuple[str, ...] = Field(min_length=1)
    """In order: a stack of optimizations, or overrides ``key=value`` with spaces between them."""
    leave_one_out: bool = False
    """Also measure the top without each rung."""
    add_one: bool = False
    """Also measure each rung alone."""

    @field_validator("rungs", mode="before")
    @classmethod
    def _as_texts(cls, value: Any) -> Any:
        return tuple(one_line(text(one)) for one in value) if isinstance(value, list | tuple) else value

    @field_validator("rungs")
    @classmethod
    def _different(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = [one for index, one in enumerate(value) if one in value[:index]]
        if twice:
            raise ValueError(f"the rung {twice[0]!r} is listed twice; leave one of them out")
        for rung in value:
            bare = [word for word in rung.split() if "=" not in word]
            if _is_overrides(rung) and bare:
                raise ValueError(
                    f"the rung {short_text(rung)} has {short_text(bare[0])}; write key=value, with spaces between them"
                )
        return value

    def factors(self) -> tuple[Factor, ...]:
        """Return one factor for each rung, off and on."""
        return tuple(Factor(rung, (_OFF, _ON), {_OFF: {}, _ON: _changes(rung)}) for rung in self.rungs)

    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield the control and the rungs, then the top without each, then each alone. None is yielded twice."""
        count = len(self.rungs)
        wanted = [frozenset(range(height)) for height in range(count + 1)]
        if self.leave_one_out:
            wanted += [frozenset(range(count)) - {index} for index in range(count)]
        if self.add_one:
            wanted += [frozenset({index}) for index in range(count)]
        for on in dict.fromkeys(wanted):
            yield {rung: _ON if index in on else _OFF for index, rung in enumerate(self.rungs)}

    def label(self, levels: Mapping[str, str]) -> str:
        """Return the rungs that are on."""
        return " + ".join(rung for rung, level in levels.items() if level == _ON)


def _changes(rung: str) -> Mapping[str, str]:
    """Return what a rung changes."""
    if not _is_overrides(rung):
        return {OPTIMIZATIONS: rung}
    return dict(one.split("=", 1) for one in rung.split())


def _is_overrides(rung: str) -> bool:
    """True if a rung is overrides ``key=value``; else it is a stack, whose fields follow a colon."""
    return "=" in rung.split(":", 1)[0]
