"""The catalogue in words: its list, the measured table "method, speed, memory: does it help?", and the lines of a card.

The table is from the lectures that this package grew out of, with a measurement in place of each yes and no. A change
whose interval contains zero is `not distinguishable`, which is neither.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import shorten
from typing import Any, Literal

from assay.analysis.catalogue import Catalogue, CatalogueEntry, Change
from assay.analysis.effects import Verdict
from assay.optimizations import Card, Optimization, catalogue
from assay.report.comparison.wording import ending, fine_percent, interval
from assay.report.kit.blocks import Block, Facts, Table
from assay.report.kit.view import Shown, plain_record
from assay.units import format_bytes, format_percent

TITLES = ("method", "speed", "memory", "loss, same seed", "proof")
NOT_YET = "not yet run"
FIRST = 4
"""Number of optimizations that the list names as the first to try."""
_COLUMNS = 80
"""Width of the list."""


def catalogue_report(known: Mapping[str, type[Optimization]]) -> Iterator[Block]:
    """Yield the list of optimizations: first those to try first, each with the reason, then what the others save."""
    first = {name: kind.usual for name, kind in known.items() if kind.usual}
    first = dict(list(first.items())[:FIRST])
    others = {name: re.split("[;:]", kind.saves)[0] for name, kind in known.items() if name not in first}
    width = max(map(len, known))
    for heading, said in (("Try these first:", first), ("\nThe others, and what they save:", others)):
        yield heading
        texts = {name: shorten(text, _COLUMNS - width - 4, placeholder=" …") for name, text in said.items()}
        yield Facts.of((f"  {name:<{width}}", text) for name, text in texts.items())
    yield "\n`assay optimizations NAME` shows the card of one, --table the measured effects."


class CatalogueView(Shown[Catalogue]):
    """The measured catalogue, as a reader is shown it: a table of some techniques, or of all, for each device."""

    def __init__(self, found: Catalogue, names: Sequence[str] = ()) -> None:
        super().__init__(found)
        self._names = names or list(catalogue())

    def blocks(self) -> Iterator[Block]:
        """Yield the measurements, device by device."""
        for device, entries in (self.found.by_device() or {"no device": {}}).items():
            yield heading(device, entries.values())
            yield Table.of(TITLES, table(self._names, entries), spare=("proof", "loss, same seed"))

    def values(self) -> list[Any]:
        """Return every measurement for programs."""
        return [plain_record(one) for name in self._names for one in self.found.of(name)]


class CardView(Shown[Card]):
    """The card of a technique, as a reader is shown it: with its state here, and what was measured of it."""

    def __init__(self, found: Card, here: str, measured: Sequence[CatalogueEntry]) -> None:
        super().__init__(found)
        self._here, self._measured = here, measured

    def blocks(self) -> Iterator[Block]:
        """Yield what it is, and its lines."""
        card = self.found
        yield f"{card.title} ({card.optimization})\n\n{card.about}\n"
        rows = [
            ("saves", card.saves),
            ("pays", card.pays),
            ("numerics", card.numerics),
            ("stage", card.stage),
            ("here", self._here),
            *card_lines(self._measured),
            ("sources", ", ".join(card.sources)),
            *((f":{field.name}", f"{field.description} (default {field.default})") for field in card.fields),
        ]
        yield Table.of(("", ""), rows)

    def values(self) -> dict[str, Any]:
        """Return the card for programs."""
        measured = [plain_record(one) for one in self._measured]
        return {**plain_record(self.found), "here": self._here, "measured": measured}


class CardsView(Shown[Sequence[CardView]]):
    """The cards of several techniques, as a reader is shown them: a line for each."""

    def blocks(self) -> Iterator[Block]:
        """Yield the list, which begins with those to try first."""
        known = catalogue()
        yield from catalogue_report({one.found.optimization: known[one.found.optimization] for one in self.found})

    def values(self) -> list[Any]:
        """Return every card for programs."""
        return [one.values() for one in self.found]


def table(optimizations: Iterable[str], entries: Mapping[str, CatalogueEntry]) -> list[tuple[str, ...]]:
    """Return a row for each optimization under `TITLES`, from the entries of one device."""
    return [_row(name, entries.get(name)) for name in optimizations]


def heading(device: str, entries: Iterable[CatalogueEntry]) -> str:
    """Return the device of a table, with the versions of torch and the dates of its measurements."""
    known = list(entries)
    versions, days = sorted({one.torch for one in known}), sorted({one.date for one in known})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{device}; torch {', '.join(versions)}; {when}"


def card_lines(entries: Sequence[CatalogueEntry]) -> list[tuple[str, str]]:
    """Return the measurements on a card: whether it was proven, and predicted against measured figures, by device."""
    return [line for one in entries for line in _lines(one)] or [("proof", NOT_YET)]


def _lines(one: CatalogueEntry) -> list[tuple[str, str]]:
    place = f"{one.device}, torch {one.torch}, {one.date}"
    if one.proven is None:
        return [("not run on", f"{place}: {ending(one.status, one.reason)}")]
    proof = "proven on" if one.proven else "not proven on"
    lines = [(proof, f"{place}: {one.evidence}")]
    bytes_ = [
        _against("tensors' peak", one.tensors_peak_bytes, one.predicted_peak_bytes),
        _against("saved for backward", one.saved_bytes, one.predicted_saved_bytes),
    ]
    said = "; ".join(filter(None, (*bytes_, *_changes(one))))
    if said:
        lines.append(("measured", f"{said} ({one.treatment} on {one.configuration})"))
    return lines + [("caution", flag) for flag in one.flags]


def _against(what: str, measured: int | None, predicted: int | None) -> str:
    if measured is None:
        return ""
    if predicted is None:
        return f"{what} {format_bytes(measured)}, not predicted"
    error = "exactly" if predicted == measured else f"off by {fine_percent(predicted / measured - 1)}"
    return f"{what} {format_bytes(measured)}, predicted {format_bytes(predicted)} ({error})"


def _changes(one: CatalogueEntry) -> list[str]:
    names = {"tensors_peak_bytes": "peak", "step_seconds": "step time", "val_loss": "validation loss"}
    return [f"{title} {_said(one.changes[name])}" for name, title in names.items() if name in one.changes]


def _row(name: str, one: CatalogueEntry | None) -> tuple[str, ...]:
    if one is None:
        return (name, "", "", "", NOT_YET)
    proof = {True: f"✓ {one.evidence}", False: f"✗ {one.evidence}", None: ending(one.status, one.reason)}[one.proven]
    speed = _helps(one.changes.get("tokens_per_second"), "more")
    memory = _helps(one.changes.get("tensors_peak_bytes"), "less")
    loss = one.changes.get("val_loss")
    return (one.treatment, speed, memory, "" if loss is None else _said(loss), proof)


def _helps(change: Change | None, better: Literal["less", "more"]) -> str:
    """Return a text such as ``"yes, −13.2 %"``: whether there is a change, and for the better."""
    if change is None:
        return ""
    if change.verdict is Verdict.EQUAL:
        return "no, exactly equal"
    if not change.verdict.distinguishable:
        return _said(change)
    helps = (change.change < 0) == (better == "less")
    return f"{'yes' if helps else 'no'}, {_said(change)}"


def _said(change: Change) -> str:
    """Return the change with its interval, or a text that there is none."""
    if change.verdict is Verdict.EQUAL:
        return "exactly equal"
    text = format_percent(change.change)
    if change.interval is not None:
        text += f" {interval(change.interval)}"
    if change.verdict is Verdict.NOT_DISTINGUISHABLE:
        return f"not distinguishable ({text})"
    if change.verdict is Verdict.TOO_FEW:
        text += " (too few to tell)"
    if change.predicted is not None:
        text += f", predicted {format_percent(change.predicted)}"
    return text
