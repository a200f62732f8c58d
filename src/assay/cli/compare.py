"""`assay compare`: a baseline against treatments, with intervals, proofs and a page."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import (
    AbsentGpu,
    Nproc,
    Overrides,
    Oversubscribe,
    Source,
    Track,
    arguments,
    changes,
    check_place,
    check_used,
)
from assay.cli.study_output import Full, finish, print_predicted

_With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="NAME[:FIELD=VALUE,...][+NAME...]",
        help="A treatment: one row of the table. Repeat it for each row. Default: three well-known techniques.",
    ),
]
_Seeds = Annotated[
    int | None,
    typer.Option("--seeds", metavar="N", max=10**6, help="Number of seeds, the same for all rows; default: 3."),
]
_Processes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Runs of every row at each seed; default: enough for three per row.",
        show_default=False,
    ),
]
_Blocks = Annotated[int | None, typer.Option("--blocks", metavar="N", help="How often each run is timed; default: 5.")]
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
_MEASURED = ("--nproc", "--oversubscribe", "--seeds", "--processes", "--blocks", "--timeout", "--track")
"""Options of a measurement, which a prediction has no use for."""
_GIVEN = ("--seeds", "--processes", "--blocks", "--timeout")
"""Options that are arguments of the comparison, too."""


def compare(
    source: Source = None,
    overrides: Overrides = None,
    with_: _With = None,
    nproc: Nproc = None,
    device: AbsentGpu = None,
    oversubscribe: Oversubscribe = False,
    seeds: _Seeds = None,
    processes: _Processes = None,
    blocks: _Blocks = None,
    timeout: _Timeout = None,
    page: _Page = None,
    track: Track = None,
    full: Full = False,
    as_json: _Json = False,
) -> None:
    """Measure what each optimization changes.

    Changes of memory, time and loss stand next to their predictions. The baseline has every optimization off and
    runs twice at each seed. The runs of a seed are alive together and are timed in turns, so that all of them see the
    same machine. Intervals are over runs, not over the times of one run, and hold for all treatments together.

    Without --with, up to three well-known techniques are compared that apply to this configuration on this machine. A
    line names them before the first run starts.

    With --device nothing is trained. Memory, work and time of each row are predicted on one GPU that may be absent.
    So is the deviation of every pair of treatments from the sum of their changes.

    \b
        assay compare demo
        assay compare demo --with sdpa_attention --with bf16_mixed
        assay compare demo --nproc 2 --with data_parallel --with tensor_parallel:degree=2
        assay compare gpt2-124m --device a100-40gb --with bf16_mixed --with sdpa_attention

    Ctrl-C stops the comparison and saves the runs that have finished.

    Exit codes: 0 done (running out of memory and diverging are results); 2 wrong input; 3 a run failed, was killed or
    timed out, or an optimization took no effect or computed wrong values; 130 interrupted.
    """
    from functools import partial

    from assay import api

    options = {
        "--nproc": nproc, "--oversubscribe": oversubscribe, "--seeds": seeds, "--processes": processes,
        "--blocks": blocks, "--timeout": timeout, "--track": track,
    }  # fmt: skip
    check_used("" if device is None else "--device", {"": _MEASURED, "--device": ()}, options)
    check_place(device, source, *(overrides or ()))
    if device is not None:
        foretell = partial(api.study.predict_comparison, source, *(overrides or ()), device=device)
        print_predicted(partial(foretell, treatments=with_ or ()), page, as_json)
        return
    ask = partial(api.compare, source, *changes(overrides, nproc, oversubscribe), treatments=with_ or ())
    finish(partial(ask, **arguments(options, *_GIVEN)), page, as_json, track, full=full)
