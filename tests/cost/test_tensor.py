"""`alter` is `dataclasses.replace` for the records of a tape, and leaves the given record alone."""

from dataclasses import replace

import pytest

from assay.config import load
from assay.cost import baseline
from assay.cost.operation import Tensor, alter
from assay.optimizations import resolve_run


@pytest.mark.parametrize("changes", [{}, {"name": "y"}, {"shape": (3, 5), "dtype": "int64", "held": True}])
def test_an_altered_tensor_is_the_replaced_one(changes: dict[str, object]) -> None:
    tensor = Tensor("x", (2, 3), batched=False)
    assert alter(tensor, **changes) == replace(tensor, **changes)  # type: ignore[arg-type]
    assert hash(alter(tensor, **changes)) == hash(replace(tensor, **changes))  # type: ignore[arg-type]
    assert tensor == Tensor("x", (2, 3), batched=False)


def test_an_altered_operation_is_the_replaced_one() -> None:
    for operation in baseline(resolve_run(load("demo", ["model.vocab_size=256"]))).tape:
        assert alter(operation, site="elsewhere", holds=("x",)) == replace(operation, site="elsewhere", holds=("x",))


def test_a_ledger_has_the_values_of_its_own_tape() -> None:
    """The values are computed once for each ledger, and not copied to a rewritten one."""
    cost = baseline(resolve_run(load("demo", ["model.vocab_size=256"])))
    assert "wide" not in cost.values
    wider = replace(cost, tables=(*cost.tables, Tensor("wide", (4,))))
    assert wider.values.keys() - cost.values.keys() == {"wide"}
    assert cost.values is cost.values
