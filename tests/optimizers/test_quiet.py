"""torchao's import says nothing, and errors still do."""

import io
import logging
import subprocess
import sys

import pytest

from assay.optimizers.quiet import importing_torchao


def test_warnings_are_hidden_inside_only() -> None:
    logger, said = logging.getLogger("torchao"), io.StringIO()
    logger.addHandler(handler := logging.StreamHandler(said))
    with importing_torchao():
        logger.warning("an extension is missing")
        logger.error("it is broken")
    logger.warning("and later")
    logger.removeHandler(handler)
    assert said.getvalue().splitlines() == ["it is broken", "and later"]


@pytest.mark.slow
def test_making_the_recipe_says_nothing() -> None:
    pytest.importorskip("torchao")
    code = "from assay.config import TrainingConfig; from assay.optimizations.adamw_8bit.step import adamw_8bit"
    code += "; adamw_8bit(TrainingConfig())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
