"""Small hostile scripts: each is answered rightly, or with a sentence; none crashes, reads stale bytes or wrongly fits.

All are forks of one process that has imported torch, which takes most of the time of a small script. An observer in a
fork writes findings of its own.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from assay import api
from assay.absent.gpus import ABSENT
from assay.absent.launch import Launched
from assay.absent.script_answer import AbsentAnswer
from assay.estimator.memory_fit import MemoryFit
from assay.report import view
from support.absent import PYTHON, Ran, needs_cuda_build, script
from support.hostile import SCRIPTS, Hostile

pytestmark = [needs_cuda_build, pytest.mark.absent, pytest.mark.slow]

DRIVER = """
import json, os, signal, sys
# torch would otherwise start CUDA to count devices, and no fork could use them.
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
import torch
found = {}
for place in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        os.chdir(place)
        output = os.open("output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1), os.dup2(output, 2)
        signal.alarm(120)
        with open("train.py") as stream:
            text = stream.read()
        exec(compile(text, f"{place}/train.py", "exec"), {"__name__": "__main__"})
        sys.exit(0)
    found[place] = child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
with open(sys.argv[1], "w") as stream:
    json.dump(found, stream)
"""
BEGIN = "import torch\nx = torch.randn(100, 100, device='cuda')\n"


@pytest.fixture(scope="module")
def answers(absent_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[AbsentAnswer, str]]:
    """The answer and the output of each script, by its name."""
    places = {}
    for one in SCRIPTS:
        places[one.name] = tmp_path_factory.mktemp("script")
        script(places[one.name], BEGIN + one.text + "\n")
    folder = tmp_path_factory.mktemp("driver")
    command = [PYTHON, script(folder, DRIVER), str(folder / "found.json"), *map(str, places.values())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASSAY_HOME", str(absent_home))
        observed = {one.process: one for one in api.absent("rtx4090", command).observations}
    found = json.loads((folder / "found.json").read_text())
    told = {}
    for name, place in places.items():
        process, code = found[str(place)]
        seen = (observed[process],) if process in observed else ()
        answer = AbsentAnswer(ABSENT["rtx4090"], 1, ("python", "train.py"), Launched(code, seen))
        told[name] = answer, (place / "output").read_text(errors="replace")
    return told


@pytest.mark.parametrize("one", SCRIPTS, ids=lambda one: one.name)
def test_it_is_right_or_says_a_sentence(one: Hostile, answers: Mapping[str, tuple[AbsentAnswer, str]]) -> None:
    answer, output = answers[one.name]
    how = answer.observation.ended.how if answer.observation else "killed"
    assert (answer.fit.value, how) == (one.fit, one.how), output
    assert one.says in " ".join(block for block in view(answer).blocks() if isinstance(block, str))
    if one.prints is not None:
        assert output.splitlines()[-1] == one.prints


USES = "import torch; torch.zeros(2**24, device='cuda')"
ELSEWHERE = {
    "exec": f"import os, sys\n{USES}\nos.execv(sys.executable, [sys.executable, '-c', 'print()'])",
    "subprocess": f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {USES!r}], check=True)",
    "spawn": "import torch, torch.multiprocessing as mp\ndef use(index):\n    torch.zeros(2**24, device='cuda')\n"
    "if __name__ == '__main__':\n    mp.spawn(use, nprocs=2)",
}
"""Scripts whose peak is in another process, or in a program that was replaced."""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_peak_in_another_process_is_found(run: Callable[..., Ran], name: str) -> None:
    ran = run(ELSEWHERE[name])
    assert ran.answer.fit is MemoryFit.YES, ran.printed
    assert ran.found.devices[0].requested_bytes == 2**26


@pytest.mark.parametrize("words", [["-c", USES], ["-m", "timeit", "-n1", "-r1", USES], ["-I", "-c", USES]])
@pytest.mark.usefixtures("home")
def test_other_ways_to_start_python(words: list[str]) -> None:
    found = api.absent("rtx4090", [PYTHON, *words])
    if words[0] == "-I":  # Python then looks at no variable, and the observer is not loaded
        assert found.fit is MemoryFit.UNKNOWN
        assert found.observation is None
    else:
        assert found.fit is MemoryFit.YES
        assert found.observation is not None
        assert found.observation.devices[0].requested_bytes == 2**26


def test_there_are_sixty() -> None:
    assert len(SCRIPTS) >= 60
    assert len({one.name for one in SCRIPTS}) == len(SCRIPTS)
