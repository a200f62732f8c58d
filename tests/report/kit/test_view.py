"""The table of views: each names a type and a view that are there, and each view has a report and values."""

import inspect
from importlib import import_module
from typing import Any

import pytest

import assay
from assay.analysis.comparison import analyse
from assay.api.result_types import PlannedStep, StudyResult
from assay.estimator.projection import Projection
from assay.report import view
from assay.report.kit.view import _VIEWS, Result, Shown
from assay.report.study.view import StudyView
from support.comparisons import record


def named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"assay.{module}"), name)


@pytest.mark.parametrize("kind", _VIEWS)
def test_every_type_has_a_view_with_a_report_and_values(kind: str) -> None:
    found = named(f"report.{_VIEWS[kind]}")
    assert named(kind).__name__ == kind.rpartition(".")[2]
    if inspect.isclass(found):
        assert issubclass(found, Shown)
        assert Shown.blocks not in (found.blocks, found.values)
        assert Shown.values is not found.values


def test_a_view_is_its_own_and_a_value_without_one_is_refused() -> None:
    shown = view(analyse(record()))
    assert isinstance(shown, StudyView)
    assert view(shown) is shown
    with pytest.raises(TypeError, match="a dict has no view"):
        view({})


def test_a_result_shows_what_its_domain_s_value_shows() -> None:
    planned = assay.plan("gpt2-124m", optimizations="data_parallel", gpu="h100")
    bare = Projection(**{name: getattr(planned, name) for name in Projection.__dataclass_fields__})
    assert isinstance(planned, PlannedStep)
    assert not isinstance(bare, Result)
    assert list(planned.report()) == list(view(planned).blocks()) == list(view(bare).blocks())
    assert planned.to_dict() == view(bare).values()


def test_a_result_has_the_fields_of_its_value_and_its_own() -> None:
    found = assay.estimate("demo")
    assert found.timeline is found.every.fullest.timeline
    assert list(found.report()) == list(view(found.every).blocks())
    comparison = analyse(record())
    assert StudyResult.from_value(comparison).rows == comparison.rows
    assert StudyResult.from_value(comparison).to_dict() == view(comparison).values()
