"""`assay doctor`: what this machine can and cannot do, and what to mend."""

from typing import Annotated

import typer


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")] = False,
) -> None:
    """Say what this machine can and cannot do.

    Each fault has what mends it. It looks at Python and torch, the processor, memory, the GPU, the instruments,
    settings of the environment, the steadiness of times, and the disk. It takes about a second, some seconds with a
    GPU, and changes nothing.

    \b
        assay doctor
        assay doctor --json
    """
    from assay.cli.console import print_json, print_table
    from assay.config import Home
    from assay.hardware.examination import FindingState, Host, examine
    from assay.launch.rates import largest_half_repeated
    from assay.report.kit.view import plain_record

    found = list(examine(Host(home=Home().root, half_repeated=largest_half_repeated)))
    if as_json:
        print_json([plain_record(one) for one in found])
        return
    print_table(
        ("", "what", "here", "so"),
        ((one.state, one.subject, one.here or "not known", one.means) for one in found),
    )
    mend = [one for one in found if one.state is FindingState.MEND]
    for one in mend:
        typer.echo(f"mend {one.subject}: {one.remedy}")
    if not mend:
        typer.echo("Nothing to mend.")
