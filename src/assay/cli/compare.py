"""`assay compare`: a baseline against treatments, with intervals, proofs and a page."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.answer import finish
from assay.cli.options import Nproc, Overrides, Oversubscribe, Source, changes
from assay.cli.tracked import Track

_With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="NAME[:FIELD=VALUE,...][+NAME...]",
        help="A treatment: one row of the table. Repeat it for each row. Default: three well-known techniques.",
    ),
]
_Seeds = Annotated[int, typer.Option(metavar="N", help="Number of seeds; all rows use the same seeds.")]
_Processes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Processes of every row at each seed; default: enough for three per row.",
        show_default=False,
    ),
]
_Blocks = Annotated[int, typer.Option(metavar="N", help="Timed blocks of every run.")]
_Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Stop a run after this time; waiting for its turn does not count."),
]
_Page = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="File of the page, with its data beside it; default: index.html in the record's folder."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print the comparison as one JSON value and nothing else.")]


def compare(
    source: Source = None,
    overrides: Overrides = None,
    with_: _With = None,
    nproc: Nproc = None,
    oversubscribe: Oversubscribe = False,
    seeds: _Seeds = 3,
    processes: _Processes = None,
    blocks: _Blocks = 5,
    timeout: _Timeout = None,
    page: _Page = None,
    track: Track = None,
    as_json: _Json = False,
) -> None:
    """Measure a baseline and how each treatment changes memory, time and loss, next to the predictions.

    The baseline has every optimization off and runs twice. Intervals are over processes, not over the blocks of one
    process, and hold for all treatments together. The runs of a seed are alive together and take turns in short timed
    blocks, so that all of them see the same machine.

    Without --with, up to three well-known techniques are compared that apply to this configuration on this machine. A
    line names them before the first run starts.

    \b
        assay compare demo
        assay compare demo --with sdpa_attention --with bf16_mixed
        assay compare demo --nproc 2 --with data_parallel --with tensor_parallel:degree=2

    Ctrl-C stops the comparison and saves the runs that have finished.

    Exit codes: 0 done (running out of memory and diverging are results); 2 wrong input; 3 a run failed, was killed or
    timed out, or an optimization took no effect or computed wrong values; 130 interrupted.
    """
    from functools import partial

    from assay import api

    ask = partial(api.compare, source, *changes(overrides, nproc, oversubscribe), treatments=with_ or ())
    finish(partial(ask, seeds=seeds, processes=processes, blocks=blocks, timeout=timeout), page, as_json, track)
