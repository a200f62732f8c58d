"""`assay optimizations`: the catalogue, and the card of each."""

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import Json

if TYPE_CHECKING:
    from assay.optimizations import Card


def optimizations(
    name: Annotated[str | None, typer.Argument(help="Show this one's card.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """List what can be turned on, or show one optimization's card.

    \b
    assay optimizations
    assay optimizations activation_checkpointing
    """
    from assay.cli.console import plain, print_json, print_table
    from assay.config import Spec
    from assay.hardware import detect
    from assay.optimizations import availability, card, catalogue, resolve

    known = catalogue() if name is None else {name: type(resolve(Spec(name=name)))}
    machine = detect()
    cards = [(card(kind), availability(kind, machine)) for kind in known.values()]
    if as_json:
        values = [{**plain(one), "here": here} for one, here in cards]
        print_json(values if name is None else values[0])
    elif name is None:
        print_table(("optimization", "stage", "saves", "pays"), [(c.usage, c.stage, c.saves, c.pays) for c, _ in cards])
    else:
        _show(*cards[0])


def _show(card: "Card", here: str) -> None:
    from assay.cli.console import print_table

    typer.echo(f"{card.title} ({card.optimization})\n\n{card.about}\n")
    rows = [
        ("saves", card.saves),
        ("pays", card.pays),
        ("numerics", card.numerics),
        ("stage", card.stage),
        ("here", here),
        ("sources", ", ".join(card.sources)),
        *((f":{field.name}", f"{field.description} (default {field.default})") for field in card.fields),
    ]
    print_table(("", ""), rows)
