"""`assay estimate`: memory and work of a step, predicted without torch for this machine or for others."""

from typing import TYPE_CHECKING

import typer

from assay.cli.options import Gpu, GpusPerNode, Json, Nodes, Nproc, Overrides, Source, With, changes

if TYPE_CHECKING:
    from assay.estimate import Estimate
    from assay.estimate.every_rank import EveryRank

_SHOWN = 48
"""Most instants to print; a deep model has several for every block."""


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
    from assay.cli.by_rank import print_ranks
    from assay.cli.console import print_json
    from assay.cli.planned import print_plan
    from assay.errors import UsageError

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
        print_json(where.to_dict()) if as_json else print_plan(where)
        return
    every = api.estimate_every_rank(source, *changes(overrides, nproc), optimizations=with_ or ())
    if as_json:
        print_json(every.to_dict())
        return
    _print_step(every)
    print_ranks(every)
    _print_instants(every.fullest)


def _print_step(every: "EveryRank") -> None:
    from assay.cli.console import print_table
    from assay.units import format_bytes, format_count, format_flops, format_seconds

    fullest = every.fullest
    idle = fullest.active_parameters < fullest.parameters
    active = f", {format_count(fullest.active_parameters)} of them active per token" if idle else ""
    of = "" if len(every.ranks) == 1 else f"rank {fullest.cost.rank} of {len(every.ranks)}, with the highest peak"
    rows = {
        "optimizations": " + ".join(map(str, every.run.optimizations)) or "none",
        "parameters": format_count(fullest.parameters) + active,
        "tokens per step": format_count(every.run.tokens_per_step),
        "weights": format_bytes(fullest.cost.parameter_bytes),
        "gradients": format_bytes(fullest.gradient_bytes),
        "optimizer state": format_bytes(fullest.cost.optimizer_state_bytes),
        "saved for backward": format_bytes(fullest.timeline.saved_bytes),
        "peak of tensors": format_bytes(fullest.timeline.peak.nbytes),
        **_scratch(fullest),
        "work": " + ".join(f"{format_flops(count)} in {dtype}" for dtype, count in fullest.flops.items()),
    }
    if every.step_seconds is not None:
        together = "" if len(every.ranks) == 1 else " of all ranks"
        rows[f"step time{together}, at the rates measured here"] = format_seconds(every.step_seconds)
        rates = fullest.machine.rates[fullest.machine.device(every.run.device)]
        if rates.caveat:
            rows["caution, these rates"] = rates.caveat
    else:
        rows["step time"] = _unknown_time(every)
    print_table(("one optimizer step", of), rows.items())


def _unknown_time(every: "EveryRank") -> str:
    """Return why no step time is predicted, and what to do."""
    from assay.runs.prepare import threads_of

    threads = threads_of(every.run)
    option = "" if threads is None else f" --threads {threads}"
    return f"not predicted; `assay machine{option}` measures the rates that it needs"


def _scratch(answer: "Estimate") -> dict[str, str]:
    """Return a row if the CPU's library allocates memory in addition to the tensors."""
    from assay.units import format_bytes

    most = answer.library_scratch_bytes
    return {"library scratch, in addition": f"0 to {format_bytes(most)}"} if most else {}


def _print_instants(answer: "Estimate") -> None:
    from assay.cli.console import print_table
    from assay.units import format_bytes

    peak, instants = answer.timeline.peak, answer.timeline.instants
    stride = -(-len(instants) // _SHOWN)
    shown = [moment for place, moment in enumerate(instants) if place % stride == 0 or moment is peak]
    rows = [
        (
            str(moment),
            format_bytes(moment.nbytes),
            f"{moment.nbytes / peak.nbytes:.0%}",
            "← peak" if moment is peak else "",
        )
        for moment in shown
    ]
    print_table(("highest instant of each part", "alive", "of the peak", ""), rows, right=("alive", "of the peak"))
    if stride > 1:
        typer.echo(f"{len(instants)} instants: one in {stride} is shown, and the peak; --json prints all")
