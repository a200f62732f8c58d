"""`assay optimizations`: the catalogue, the card of each optimization, and their measurements."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.option_rules import check_used, given_options
from assay.cli.options import Json

if TYPE_CHECKING:
    from assay.analysis.catalogue import Catalogue
    from assay.optimizations import Card

_Table = Annotated[bool, typer.Option("--table", help="Print the measured effects on speed, memory and loss.")]
_Measured = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With NAME, --table or --json: a file of benchmarks/catalogue.py; default: the package's measurements.",
    ),
]
_USES = {"": (), "NAME": ("--measured",), "--table": ("--measured",), "--json": ("--measured",)}


def optimizations(
    name: Annotated[str | None, typer.Argument(help="Show the card of this optimization.", show_default=False)] = None,
    table: _Table = False,
    measured: _Measured = None,
    as_json: Json = False,
) -> None:
    """List the optimizations, or show a card.

    The card of an optimization says what it saves and pays, and shows its proof and its measured effects.

    \b
        assay optimizations
        assay optimizations activation_checkpointing
        assay optimizations --table
    """
    from assay.analysis.catalogue import read, shipped_path
    from assay.cli.console import plain, print_blocks, print_json
    from assay.config import Spec
    from assay.hardware import detect
    from assay.optimizations import availability, card, catalogue, resolve
    from assay.report.catalogue import catalogue_report

    mode = next(iter(given_options({"NAME": name, "--table": table, "--json": as_json})), "")
    check_used(mode, _USES, {"--measured": measured})
    known = catalogue() if name is None else {name: type(resolve(Spec(name=name)))}
    found = read(shipped_path() if measured is None else measured)
    if table:
        _table(list(known), found, as_json)
        return
    machine = detect()
    cards = [(card(kind), availability(kind, machine)) for kind in known.values()]
    if as_json:
        values = [
            {**plain(one), "here": here, "measured": list(map(plain, found.of(one.optimization)))}
            for one, here in cards
        ]
        print_json(values if name is None else values[0])
    elif name is None:
        print_blocks(catalogue_report(known))
    else:
        _show(*cards[0], found)


def _table(names: list[str], found: "Catalogue", as_json: bool) -> None:
    """Print the measurements, device by device."""
    from assay.cli.console import plain, print_json, print_table
    from assay.report.catalogue import TITLES, heading, table

    if as_json:
        print_json([plain(one) for name in names for one in found.of(name)])
        return
    for device, entries in (found.by_device() or {"no device": {}}).items():
        typer.echo(heading(device, entries.values()))
        print_table(TITLES, table(names, entries), spare=("proof", "loss, same seed"))


def _show(card: "Card", here: str, found: "Catalogue") -> None:
    from assay.cli.console import print_table
    from assay.report.catalogue import card_lines

    typer.echo(f"{card.title} ({card.optimization})\n\n{card.about}\n")
    rows = [
        ("saves", card.saves),
        ("pays", card.pays),
        ("numerics", card.numerics),
        ("stage", card.stage),
        ("here", here),
        *card_lines(found.of(card.optimization)),
        ("sources", ", ".join(card.sources)),
        *((f":{field.name}", f"{field.description} (default {field.default})") for field in card.fields),
    ]
    print_table(("", ""), rows)
