"""Every record with figures that are not finite is read back from its JSON."""

import json
import typing
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import assay.records
from assay.records.base import Record
from assay.records.evidence import ValueProof

for _module in walk_packages(assay.records.__path__, "assay.records."):
    import_module(_module.name)


def _kinds(of: type[Record] = Record) -> Iterator[type[Record]]:
    for kind in of.__subclasses__():
        if kind.__module__.startswith("assay.records"):
            yield kind
            yield from _kinds(kind)


def _figures(kind: type[Record]) -> dict[str, Any]:
    return {
        name: hint
        for name, hint in typing.get_type_hints(kind).items()
        if name in kind.model_fields and (hint is float or hint == float | None)
    }


@pytest.mark.parametrize("kind", [one for one in _kinds() if _figures(one)], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("figure", [float("inf"), float("-inf"), float("nan")])
def test_its_figures_come_back(kind: type[Record], figure: float) -> None:
    made = kind.model_construct(**dict.fromkeys(_figures(kind), figure))
    written = json.loads(made.model_dump_json(include=set(_figures(kind))), parse_constant=pytest.fail)
    for name, hint in _figures(kind).items():
        if hint is float:
            assert written[name] is not None, f"{name} of {kind.__name__} would be read as nothing"
        assert written[name] is None or str(float(written[name])) == str(figure)


def test_an_infinite_error_is_a_failure_that_can_be_read() -> None:
    proof = ValueProof(failures=("wrong",), steps=3, used=float("inf"), gradient_error=float("nan"))
    again = ValueProof.model_validate_json(proof.model_dump_json())
    assert (again.verdict, again.used, str(again.gradient_error)) == (False, float("inf"), "nan")


def test_a_proof_is_false_until_it_was_shown() -> None:
    assert not ValueProof().verdict
    assert not ValueProof(unchecked="off").verdict
    assert not ValueProof(broken="killed").checked


def test_parts_of_a_run_are_joined() -> None:
    first = ValueProof(verdict=True, steps=3, updates=3, used=0.2, baseline_steps=8.0, middle_steps=30)
    middle = ValueProof(verdict=True, steps=1, updates=1, replayed=1, used=0.5, baseline_steps=2.0)
    both = first.joined(middle)
    assert (both.verdict, both.steps, both.replayed, both.used) == (True, 4, 1, 0.5)
    assert (both.baseline_steps, both.middle_steps, both.loss_error) == (10.0, 30, None)
    assert not both.joined(ValueProof(failures=("wrong",), steps=1)).verdict
    assert both.joined(ValueProof(broken="killed")).broken == "killed"
    assert both.joined(ValueProof(unchecked="no room")) == both
