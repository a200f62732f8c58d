"""Names of a user's functions."""

from pathlib import Path

import pytest

from assay.config.extensions import call_function, names_a_function, needed_parameters, parameters_of
from assay.errors import UsageError


@pytest.mark.parametrize("text", ["a:b", "a.b:c", "a/b.py:c", "/tmp/x-y/a.py:build", "my.module:build"])
def test_names(text: str) -> None:
    assert names_a_function(text)


@pytest.mark.parametrize("text", ["demo", "my.yaml", "a=b:c", "a:", ":b", "a:1", "a:b c", "run:20", None, 3])
def test_other_texts(text: object) -> None:
    assert not names_a_function(text)


def test_faults_of_the_user_s_code_are_named(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text("def build():\n    raise KeyError('data')\nvalue = 3\n")
    for name, sentence in (
        ("faulty.py:build", "faulty.py:build failed: KeyError: 'data'"),
        ("faulty.py:value", "value of faulty.py is no function"),
        ("absent.py:build", "cannot be imported"),
    ):
        with pytest.raises(UsageError, match=sentence):
            call_function(name, tmp_path)


def test_a_default_makes_a_parameter_optional(tmp_path: Path) -> None:
    (tmp_path / "sized.py").write_text("def build(rows, width=8, *more, depth, **rest): ...\n")
    assert needed_parameters(parameters_of("sized.py:build", tmp_path)) == ("rows", "depth")
