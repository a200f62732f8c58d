"""The second document's treatments, with its dropout, on a device whose masks depend on the dtype: all are proven.

A real comparison runs them, in processes and files of their own. In each of them a CPU draws masks as CUDA does.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
TREATMENTS = ("sgd:momentum=0", "fp16_mixed", "bf16_mixed", "smaller_batch:factor=4", "gradient_accumulation")
DOUBLE = """
import pytest

from support.masks_by_dtype import masks_by_dtype

double = masks_by_dtype(pytest.MonkeyPatch())
double.__enter__()
"""
UNKNOWN = """
from assay.values import masks

masks.depend_on_dtype = lambda device: False
"""
"""With it the checks do not know of the double."""


def compared(folder: Path, text: Path, treatments: tuple[str, ...], double: str) -> dict[str, str]:
    """Compare treatments of a narrow `shakespeare-char`, whose depth and dropout stay, in processes with the double."""
    place = folder / "double"
    place.mkdir()
    (place / "sitecustomize.py").write_text(double)
    own = (f"data.path={text}", "training.batch_size=4", "training.steps=12", "training.eval_interval=0")
    own += ("training.eval_batches=2", "training.warmup_steps=2", "model.context_length=32", "model.n_embd=96")
    rows = [word for one in treatments for word in ("--with", one)]
    command = [sys.executable, "-m", "assay", "compare", "shakespeare-char", *own, *rows]
    command += ["--seeds", "1", "--processes", "1", "--blocks", "1", "--json"]
    path = os.pathsep.join((str(place), str(TESTS), *filter(None, sys.path)))
    names = {"PYTHONPATH": path, "ASSAY_HOME": str(folder / "home")}
    done = subprocess.run(command, env={**os.environ, **names}, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    return {row["treatment"]: row["status"] for row in json.loads(done.stdout)["rows"]}


def test_all_treatments_of_the_second_document_are_proven(tmp_path: Path, shakespeare: Path) -> None:
    assert compared(tmp_path, shakespeare, TREATMENTS, DOUBLE) == dict.fromkeys(TREATMENTS, "done")


def test_where_masks_are_not_kept_a_treatment_in_16_bits_is_called_wrong(tmp_path: Path, shakespeare: Path) -> None:
    assert compared(tmp_path, shakespeare, ("bf16_mixed",), DOUBLE + UNKNOWN) == {"bf16_mixed": "wrong_values"}


@pytest.fixture
def shakespeare(tmp_path: Path) -> Path:
    """Prose that repeats, with the characters of English."""
    text = tmp_path / "text.txt"
    text.write_text("All happy families are alike; each unhappy family is unhappy in its own way. " * 400)
    return text
