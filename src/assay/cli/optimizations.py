"""`assay optimizations`: the catalogue, and the card of each."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from assay.optimizations import Optimization


def optimizations(
    name: Annotated[str | None, typer.Argument(help="Show this one's card.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")] = False,
) -> None:
    """List what can be turned on, or show one optimization's card.

    assay optimizations activation_checkpointing
    """
    from assay.cli.console import print_json
    from assay.optimizations import catalogue, resolve

    known = catalogue()
    if name is not None:
        from assay.config import Spec

        known = {name: type(resolve(Spec(name=name)))}
    cards = [_card(kind) for kind in known.values()]
    if as_json:
        print_json(cards if name is None else cards[0])
    elif name is None:
        _list(cards)
    else:
        _show(cards[0])


def _card(kind: "type[Optimization]") -> dict[str, Any]:
    """The card as plain values."""
    fields = [
        {"name": field, "default": about.default, "description": about.description or _doc(kind, field)}
        for field, about in kind.model_fields.items()
    ]
    return {
        "optimization": kind.name(),
        "title": kind.title,
        "stage": kind.stage.name,
        "numerics": kind.numerics.value,
        "saves": kind.saves,
        "pays": kind.pays,
        "sources": list(kind.sources),
        "claims": sorted(kind.claims),
        "fields": fields,
        "about": _module_doc(kind),
        "here": _availability(kind),
    }


def _availability(kind: "type[Optimization]") -> str:
    """Whether this machine can do it, for the demonstration's model: "available", or the reason why not."""
    from assay.config import Run
    from assay.hardware import detect
    from assay.optimizations import Unavailable

    try:
        kind().check(Run(), detect())
    except Unavailable as reason:
        return f"unavailable: {reason}"
    return "available"


def _module_doc(kind: type) -> str:
    import inspect
    import sys

    return inspect.cleandoc(sys.modules[kind.__module__].__doc__ or "")


def _doc(kind: type, field: str) -> str:
    """The text under a field's definition, which pydantic does not read."""
    import ast
    import inspect
    import textwrap

    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for statement, after in zip(tree.body, tree.body[1:], strict=False):
        named = isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == field
        if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return str(after.value.value)
    return ""


def _list(cards: list[dict[str, Any]]) -> None:
    from assay.cli.console import print_table

    rows = [
        (
            ":".join(
                filter(None, (card["optimization"], ",".join(f"{f['name']}={f['default']}" for f in card["fields"])))
            ),
            card["stage"],
            card["saves"],
            card["pays"],
        )
        for card in cards
    ]
    print_table(("optimization", "stage", "saves", "pays"), rows)


def _show(card: dict[str, Any]) -> None:
    from assay.cli.console import print_table

    typer.echo(f"{card['title']} ({card['optimization']})\n\n{card['about']}\n")
    rows = [(key, str(card[key])) for key in ("saves", "pays", "numerics", "stage", "here")]
    rows.append(("sources", ", ".join(card["sources"])))
    rows += [(f":{one['name']}", f"{one['description']} (default {one['default']})") for one in card["fields"]]
    print_table(("", ""), rows)
