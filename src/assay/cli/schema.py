"""`assay schema`: JSON schemas of the files that assay writes and reads, and of `--json`."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import Json


def schema(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Schema to print; without one, all are listed.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the schema into a file, and print its path.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List JSON schemas, or print one.

    They describe records of runs and studies, the value of --json of verbs, and study files.

    A schema has a version, which is in its $id. For an editor, write that of study files beside them, and begin a file
    with the line

    \b
        # yaml-language-server: $schema=study.schema.json

    \b
        assay schema
        assay schema run
        assay schema study --out study.schema.json
    """
    from assay.api.schema import SCHEMAS
    from assay.api.schema import schema as find
    from assay.cli.console import print_json, print_table
    from assay.errors import UsageError
    from assay.files import write_file
    from assay.units import json_text

    if name is None:
        if out is not None:
            raise UsageError("--out needs a schema; name one, as in assay schema study --out study.schema.json")
        listed = [{"name": one.name, "version": one.version, "of": one.title} for one in SCHEMAS.values()]
        if as_json:
            print_json(listed)
        else:
            print_table(("schema", "version", "of"), [tuple(map(str, one.values())) for one in listed], ("version",))
    elif out is None:
        print_json(find(name).plain())
    else:
        write_file(out, json_text(find(name).plain(), indent=1, ensure_ascii=False).encode() + b"\n")
        typer.echo(str(out))
