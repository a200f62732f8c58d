"""`assay estimate`: memory and work of a step, predicted without torch for this machine or for others."""

from assay.cli.options import Gpu, GpusPerNode, Json, Nodes, Nproc, Overrides, Source, With, changes


def estimate(
    source: Source = None,
    overrides: Overrides = None,
    with_: With = None,
    nproc: Nproc = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    gpu: Gpu = None,
    as_json: Json = False,
) -> None:
    """Predict the memory of one optimizer step by instant, and its work. The prediction takes milliseconds.

    With --nproc: predict the rank with the highest peak, then memory and payload of all ranks, and their joint step
    time. With --nodes, --gpus-per-node or --gpu: plan the step for other machines, from datasheets.

    \b
        assay estimate demo
        assay estimate gpt2-124m --with sdpa_attention+bf16_mixed training.batch_size=16
        assay estimate demo --nproc 2 --with fully_sharded
        assay estimate gpt2-1558m training.batch_size=512 --nodes 4 --gpus-per-node 8 --gpu h100 --with fully_sharded
    """
    from assay import api
    from assay.cli.console import print_blocks, print_json
    from assay.errors import UsageError
    from assay.report.estimate import estimate_report
    from assay.report.plan import plan_report

    if (nodes, gpus_per_node, gpu) != (None, None, None):
        if nproc is not None:
            raise UsageError("--nproc describes this machine and --nodes other machines; give only one of them")
        where = api.project(
            source,
            *changes(overrides, nproc),
            optimizations=with_ or (),
            gpu=gpu or "a100",
            nodes=1 if nodes is None else nodes,
            gpus_per_node=8 if gpus_per_node is None else gpus_per_node,
        )
        print_json(where.to_dict()) if as_json else print_blocks(plan_report(where))
        return
    every = api.estimate_every_rank(source, *changes(overrides, nproc), optimizations=with_ or ())
    if as_json:
        print_json(every.to_dict())
        return
    print_blocks(estimate_report(every))
