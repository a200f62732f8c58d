"""`assay mesh`: the ranks of a mesh and their groups, before any process is started."""

from typing import Annotated

import typer

from assay.cli.options import Json

_LARGEST = 2**20
"""Most ranks: more than any machine has, and few enough to list."""


def mesh(
    world: Annotated[int, typer.Option("--world", metavar="RANKS", help="Number of ranks.")],
    tp: Annotated[int, typer.Option("--tp", metavar="N", help="Ranks that share the tensors of a layer.")] = 1,
    pp: Annotated[int, typer.Option("--pp", metavar="N", help="Stages that share the layers.")] = 1,
    cp: Annotated[int, typer.Option("--cp", metavar="N", help="Ranks that share each sequence.")] = 1,
    ranks_per_node: Annotated[
        int | None,
        typer.Option("--ranks-per-node", metavar="N", help="Show nodes, and which groups cross them."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw how a mesh divides a run among ranks.

    Ranks stand by pipeline stage and data index, with the groups of each axis. The axis dp divides the batch; its
    degree is world / (pp × cp × tp). Names and order are those of NVIDIA's NeMo: the ranks of a tensor group are
    neighbours, those of a pipeline are furthest apart.

    \b
        assay mesh --world 16 --tp 2 --pp 2
        assay mesh --world 3072 --tp 8 --pp 64 --ranks-per-node 8
    """
    from assay.cli.console import print_view
    from assay.config.mesh import fill, nodes
    from assay.errors import UsageError
    from assay.report.mesh import MeshView

    if world > _LARGEST:
        raise UsageError(f"{world} ranks are too many to list; give at most {_LARGEST}")
    # A degree of 1 divides anything, so an error need not name it.
    named: dict[str, int | None] = {axis: n for axis, n in (("pp", pp), ("cp", cp), ("tp", tp)) if n != 1}
    found = fill(world, {**named, "dp": None})
    if ranks_per_node is not None:
        nodes(found, ranks_per_node)
    print_view(MeshView(found, ranks_per_node), as_json)
