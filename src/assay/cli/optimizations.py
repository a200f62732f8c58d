"""`assay optimizations`: the catalogue, the card of each optimization, and their measurements."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import Json, check_used, given_options

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
    from assay.cli.console import print_view
    from assay.config import Spec
    from assay.hardware import detect
    from assay.optimizations import availability, card, catalogue, resolve
    from assay.report.catalogue import CardsView, CardView, CatalogueView

    mode = next(iter(given_options({"NAME": name, "--table": table, "--json": as_json})), "")
    check_used(mode, _USES, {"--measured": measured})
    known = catalogue() if name is None else {name: type(resolve(Spec(name=name)))}
    found = read(shipped_path() if measured is None else measured)
    if table:
        print_view(CatalogueView(found, list(known)), as_json)
        return
    machine = detect()
    cards = [CardView(card(kind), availability(kind, machine), found.of(name)) for name, kind in known.items()]
    print_view(CardsView(cards) if name is None else cards[0], as_json)
