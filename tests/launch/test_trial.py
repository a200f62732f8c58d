"""A faulty optimization of a user's own is found before a study's first cell."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.config import Home, load
from assay.errors import UsageError
from assay.launch.prepare import ready
from assay.launch.trial import try_own
from cli.conftest import TINY

WHOLE = (Path(__file__).parents[2] / "examples" / "extension" / "optimizations" / "halved_rate.py").read_text()
WRITTEN = {
    "apply": WHOLE.replace("schedule = program.schedule", "schedule = program.scedule"),
    "verify": WHOLE.replace("return self.evidence(observed, ", "self.evidence(observed, "),
    "whole": WHOLE,
}
LINE = next(number for number, line in enumerate(WHOLE.splitlines(), 1) if "schedule = program.schedule" in line)


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of extensions, one optimization for each way in which it can be written."""
    folder = tmp_path / "mine" / "optimizations"
    folder.mkdir(parents=True)
    for name, text in WRITTEN.items():
        (folder / f"{name}_of_mine.py").write_text(text)
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 200)
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path / "mine"))
    return tmp_path


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("apply", rf"apply_of_mine\.py, line {LINE}: AttributeError: .*scedule"),
        pytest.param("verify", r"verify returns None; return self\.evidence", marks=pytest.mark.slow),
        pytest.param("whole", None, marks=pytest.mark.slow),
    ],
)
def test_a_step_with_it_tells_what_is_wrong(tried: Path, name: str, says: str | None) -> None:
    home = Home(tried / "home")
    run = load("demo", [*TINY, "training.warmup_steps=1", f"data.path={tried / 'text.txt'}"])
    one = ready(load(run, [f"optimizations={name}_of_mine"]), home)
    told: list[str] = []
    if says is None:
        try_own([one, one], home, lambda text, share: told.append(text))
        assert told == ["trying whole_of_mine in one step"]
        return
    with pytest.raises(UsageError, match=says):
        try_own([one], home, lambda text, share: told.append(text))


def test_stacks_of_assay_s_own_and_ranks_are_not_tried(tried: Path) -> None:
    home, path = Home(tried / "home"), f"data.path={tried / 'text.txt'}"
    own = ready(load("demo", [*TINY, path, "optimizations=sdpa_attention"]), home)
    mine = ready(load("demo", [*TINY, path, "optimizations=apply_of_mine"]), home)
    divided = replace(mine, run=mine.run.model_copy(update={"ranks": 2}))
    told: list[str] = []
    try_own([own, divided], home, lambda text, share: told.append(text))
    assert told == ["not tried before the first run over ranks: apply_of_mine"]
