"""Search and replacement of the attention cores in a ledger, whichever module wrote them."""

from collections.abc import Callable

from assay.cost.layers import Tape
from assay.cost.operation import Tensor
from assay.cost.step_cost import Cost

CORE = ".attention.core"
"""Part of a site's name that marks it as an attention core."""


def exchange_core(cost: Cost, make: Callable[[str, Tensor, Tensor, Tensor], Tape]) -> Cost:
    """The ledger in which `make` writes each core anew: (site, queries, keys, values) → operations up to the merged
    heads.
    """
    values = cost.values

    def exchanged(core: Tape) -> Tape:
        made = {tensor.name for operation in core for tensor in operation.outputs}
        read = dict.fromkeys(name for operation in core for name in operation.inputs if name not in made)
        q, k, v = (values[name] for name in read if values[name] not in cost.tables)
        return make(core[0].site, q, k, v)

    return cost.rewrite(lambda site: CORE in site, exchanged)
