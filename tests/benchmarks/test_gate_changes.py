"""Changes of a script: each is one, and a gate tells those that cost memory from those that do not."""

from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from support.fake_library import shared_library


@pytest.fixture
def script() -> ModuleType:
    """Return the script, which lies beside others in `benchmarks/`."""
    import gate_changes  # type: ignore[import-not-found]

    found: ModuleType = gate_changes
    return found


def test_there_are_ten_changes_of_each_kind_and_each_changes_its_script(script: ModuleType, tmp_path: Path) -> None:
    assert len(script.COSTS) == len(script.COSTS_NOTHING) == 10
    for text, changes in script.SCRIPTS.values():
        for change in changes:
            change.write(text, tmp_path)
            changed = (tmp_path / "train.py").read_text()
            assert changed != text, change.name
            compile(changed, change.name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "h100"])
@pytest.mark.parametrize("name", ["GPT", "Llama"])
def test_every_change_is_told_apart(
    script: ModuleType,
    name: str,
    device: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if name == "Llama" and find_spec("transformers") is None:
        pytest.skip("transformers is not installed; the extra hf has it")
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    shared_library(tmp_path_factory, tmp_path / "home")
    found = list(script.told(name, device))
    assert [one.change.name for one in found if not one.right] == []
    assert all(one.named for one in found if one.change.costs)
