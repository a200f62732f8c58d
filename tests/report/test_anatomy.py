"""A step as a trace: the keys that the format requires, and slices that nest."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UsageError
from assay.records.anatomy import BETWEEN, UPDATE, Anatomy, Operator
from assay.report.anatomy import check_trace, trace_of, write_trace
from support.traces import nest

STEP = (
    ("forward", "blocks.0.mlp.up", "aten.mm"),
    ("forward", "blocks.0.mlp.up", "aten.add"),
    ("forward", "blocks.0.mlp", "aten.gelu"),
    ("forward", "blocks.1.mlp.up", "aten.mm"),
    ("forward", BETWEEN, "aten.view"),
    ("backward", "blocks.1.mlp.up", "aten.mm"),
    ("recompute", "blocks.0", "aten.mm"),
    ("backward", "blocks.0", "aten.mm"),
    ("update", UPDATE, "aten.add_"),
)


def anatomy() -> Anatomy:
    operators = tuple(
        Operator(
            name=name,
            module=module,
            phase=phase,  # type: ignore[arg-type]
            operation_class="contraction",
            begin_seconds=index * 1.1e-6,
            seconds=1e-6 / 3,
            flops=10,
            bytes=20,
            alive_bytes=1000 + index,
        )
        for index, (phase, module, name) in enumerate(STEP)
    )
    return Anatomy(parts=(), step_seconds=1e-5, watched_seconds=2e-5, title="demo", operators=operators)


def slices() -> list[dict[str, Any]]:
    return [one for one in trace_of(anatomy())["traceEvents"] if one["ph"] == "X"]


def test_every_event_has_the_keys_of_its_kind() -> None:
    whole = trace_of(anatomy())
    assert set(whole) == {"traceEvents", "displayTimeUnit", "otherData"}
    required = {
        "X": {"name", "cat", "ts", "dur", "pid", "tid"},
        "C": {"name", "ts", "pid", "args"},
        "M": {"name", "pid", "args"},
    }
    for one in whole["traceEvents"]:
        assert set(one) >= required[one["ph"]]
        assert all(isinstance(one[key], int | float) and one[key] >= 0 for key in ("ts", "dur") if key in one)
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole


def test_slices_nest_and_hold_what_belongs_to_them() -> None:
    events = slices()
    assert nest(events)
    assert [one["name"] for one in events if one["cat"] == "phase"] == [
        *("forward", "backward", "recompute", "backward", "update")
    ]
    names = [one["name"] for one in events if one["cat"] == "module"]
    assert sorted(names) == sorted(
        ["blocks.0", "mlp", "up", "blocks.1", "mlp", "up", "blocks.1", "mlp", "up", "blocks.0", "blocks.0"]
    )
    (first,) = [one for one in events if one["cat"] == "phase" and one["name"] == "forward"]
    inside = [one for one in events if one["cat"] == "contraction" and one["ts"] < first["ts"] + first["dur"]]
    assert len(inside) == 5
    assert len([one for one in events if one["cat"] == "contraction"]) == len(STEP)


def test_slices_that_overlap_are_noticed() -> None:
    assert not nest([{"ts": 0.0, "dur": 2.0}, {"ts": 1.0, "dur": 2.0}])


def test_memory_is_a_counter() -> None:
    counters = [one for one in trace_of(anatomy())["traceEvents"] if one["ph"] == "C"]
    assert [one["args"]["bytes alive"] for one in counters] == [1000 + index for index in range(len(STEP))]


@pytest.mark.parametrize("name", ["step.json", "step.json.gz"])
def test_it_is_written_whole(tmp_path: Path, name: str) -> None:
    write_trace(anatomy(), tmp_path / name)
    content = (tmp_path / name).read_bytes()
    assert json.loads(gzip.decompress(content) if name.endswith(".gz") else content) == trace_of(anatomy())


@pytest.mark.parametrize(
    ("name", "says"), [("step.txt", "must end in .json or .json.gz"), ("no/step.json", "no folder")]
)
def test_a_file_that_cannot_be_is_said_at_once(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_trace(tmp_path / name)
