"""`assay plan`: a step on several nodes that may be absent, planned from datasheets."""

from typing import Annotated

import typer

from assay.cli.options import GpusPerNode, Json, Overrides, Source, With, arguments

_Nodes = Annotated[int | None, typer.Option("--nodes", metavar="N", help="Number of nodes; default: 1.")]
_Gpu = Annotated[str | None, typer.Option("--gpu", metavar="a100|h100|h200", help="Model of the GPUs; default: a100.")]


def plan(
    source: Source = None,
    overrides: Overrides = None,
    with_: With = None,
    nodes: _Nodes = None,
    gpus_per_node: GpusPerNode = None,
    gpu: _Gpu = None,
    as_json: Json = False,
) -> None:
    """Plan a step over the GPUs of several nodes.

    The techniques divide the run among all GPUs of all nodes, which may be absent. Memory and traffic of a rank and the
    time of the step follow from datasheets, and nothing is measured. A technique that a plan cannot express is
    refused. A plan is of one run, so several --with are joined to one stack.

    \b
        assay plan gpt2-124m training.batch_size=64 --nodes 4 --with data_parallel
        assay plan gpt2-1558m training.batch_size=512 --nodes 4 --gpus-per-node 8 --gpu h100 --with fully_sharded
        assay plan examples/gpt3-175b.yaml --nodes 128 --gpu a100

    Exit codes: 0 done; 2 wrong input.
    """
    from assay import api
    from assay.cli.console import print_view

    options = {"--nodes": nodes, "--gpus-per-node": gpus_per_node, "--gpu": gpu}
    machines = {"gpu": "a100"} | arguments(options, *options)
    print_view(api.plan(source, *(overrides or ()), optimizations=with_ or (), **machines), as_json)
