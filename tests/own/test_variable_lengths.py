"""The example of rows of many lengths: what is padding, and that its steps run."""

import importlib.util
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "variable_lengths.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("variable_lengths", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("multiple", [1, 16])
def test_labels_beyond_a_document_are_ignored(example: ModuleType, multiple: int) -> None:
    counts = example.lengths(100)
    for ids, labels in islice(example.padded(4, 100, multiple), 5):
        documents = list(islice(counts, 4))
        assert ids.size(1) == min(100, -(-max(documents) // multiple) * multiple)
        assert (labels != example.IGNORED).sum(1).tolist() == documents
        assert labels[labels != example.IGNORED].tolist() == ids[labels != example.IGNORED].tolist()


def test_the_steps_of_the_example_run(example: ModuleType) -> None:
    for step in (example.padded_step(), example.packed_step()):
        assert 5 < float(step()) < 7  # near log 256
