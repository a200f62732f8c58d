"""`assay data`: prepare a corpus once, list the prepared corpora, and plan a run's tokens."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import Json, Overrides, Source

if TYPE_CHECKING:
    from assay.data.prepared_folder import Manifest

app = typer.Typer(help="Prepare and list texts, and plan tokens.", no_args_is_help=True)


@app.command("ls")
def list_prepared(as_json: Json = False) -> None:
    """List the prepared corpora of this home."""
    from assay.config import Home
    from assay.data.prepared_folder import read_manifest
    from assay.errors import UsageError

    home = Home().checked()
    rows: list[dict[str, Any]] = []
    places = sorted(home.data.iterdir()) if home.data.is_dir() else []
    for folder in (path for path in places if path.is_dir() and not path.name.startswith(".")):
        try:
            rows.append({"name": folder.name, "folder": str(folder), **_facts(read_manifest(folder))})
        except UsageError as error:
            rows.append({"name": folder.name, "folder": str(folder), "error": str(error)})
    _print(rows, rows, as_json)


@app.command("prepare")
def prepare_corpus(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET|FILE] [KEY=VALUE]...", help="A configuration; only its data settings are used."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read, tokenize and store a corpus, or check and repair the stored one."""
    from assay.config import Home, load
    from assay.data import prepare

    named = list(words or [])
    source = named.pop(0) if named and "=" not in named[0] else None
    config = load(source, named).data
    home, told = Home(), set[str]()

    def show(message: str, fraction: float | None) -> None:
        told.add(message)
        _show(message, fraction)

    with home.provisional():
        prepared = prepare(config, home, show, thorough=True)
    for remark in map(str, prepared.manifest.remarks):
        if remark not in told:  # the corpus was read by an earlier command
            _show(remark, None)
    row = {
        "name": prepared.folder.name,
        "folder": str(prepared.folder),
        **_facts(prepared.manifest),
        "notes": list(prepared.notes),
    }
    _print(row, [row], as_json)


@app.command("plan")
def plan_tokens(source: Source = None, overrides: Overrides = None, as_json: Json = False) -> None:
    """Show a run's budget of tokens: steps per epoch, epochs, and tokens per parameter. Nothing is trained.

    \b
        assay data plan shakespeare-char-cpu
        assay data plan my.yaml training.batch_size=32
    """
    from assay import api
    from assay.cli.console import print_view

    print_view(api.token_budget(source, *(overrides or []), on_progress=_show), as_json)


def _facts(manifest: "Manifest") -> dict[str, Any]:
    return {
        "source": manifest.source.title,
        "tokenizer": manifest.tokenizer,
        "vocab_size": manifest.vocab_size,
        "train_tokens": manifest.train.tokens,
        "validation_tokens": manifest.validation.tokens,
        "train_text_bytes": manifest.train.text_bytes,
        "validation_text_bytes": manifest.validation.text_bytes,
        "dtype": manifest.dtype,
        "digest": manifest.digest,
        "remarks": [str(remark) for remark in manifest.remarks],
    }


def _show(message: str, fraction: float | None) -> None:
    """Print progress on standard error: a line per message, and one line that is overwritten while a fraction grows."""
    import sys

    if fraction is None:
        print(message, file=sys.stderr)
    elif sys.stderr.isatty():
        print(f"\r{message} {fraction:4.0%}", end="\n" if fraction >= 1 else "", file=sys.stderr, flush=True)


def _print(value: Any, rows: list[dict[str, Any]], as_json: bool) -> None:
    from assay.cli.console import note, print_json, print_table

    if as_json:
        print_json(value)
    elif rows:
        columns = ("name", "source", "vocab_size", "train_tokens", "validation_tokens", "tokenizer", "digest")
        print_table(
            columns, [[_cell(row, column) for column in columns] for row in rows], spare=("digest", "tokenizer")
        )
    else:
        note("this home has no prepared corpus yet; run assay data prepare")


def _cell(row: dict[str, Any], column: str) -> str:
    if "error" in row:
        return row["name"] if column == "name" else f"damaged: {row['error']}" if column == "source" else ""
    return str(row[column])[:12] if column == "digest" else str(row[column])
