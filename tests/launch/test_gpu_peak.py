"""The process that runs a step on an absent GPU finds what the step imports and reads."""

import os
from pathlib import Path
from typing import Any

import pytest

from assay.api.configuration import own_source
from assay.fake.peak import GpuPeak
from assay.launch import gpu_peak
from assay.optimizations import resolve_run


def test_the_process_has_the_folder_of_the_function_and_the_user_s_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def answer(command: list[str], variables: dict[str, str], task: Any, seconds: Any, folder: Path) -> str:
        seen.update(variables=variables, folder=folder, own=task["run"]["model"]["own"])
        return "{}"

    monkeypatch.setattr(gpu_peak, "answer_of", answer)
    monkeypatch.setattr(gpu_peak, "library_for", lambda *_: Path("library"))
    monkeypatch.setattr(GpuPeak, "model_validate_json", lambda text: text)
    monkeypatch.setenv(gpu_peak.PYTHON, "python")
    monkeypatch.setenv("PYTHONPATH", "mine")
    run = resolve_run(own_source("steps.py:build", tmp_path))
    gpu_peak.run_on_absent_gpu(run, "h100", lambda text: None)
    assert (seen["own"], seen["folder"]) == ("steps.py:build", tmp_path)
    assert seen["variables"]["PYTHONPATH"].split(os.pathsep) == [str(Path(gpu_peak.__file__).parents[2]), "mine"]
