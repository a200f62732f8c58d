"""Commands that train a configuration again."""

from pathlib import Path

import pytest

from assay.config import load
from assay.optimizations import resolve_run
from assay.report.kit.blocks import arguments, option, stack


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("training.steps=20",),
        ("training.learning_rate=0.0003", "model.n_layer=4", "seed=7"),
        ("data.path=my text.txt", "cores=[0,1]", "oversubscribe=true"),
        ("model.vocab_size=512",),
    ],
)
def test_the_arguments_give_the_same_run(overrides: tuple[str, ...]) -> None:
    import shlex

    run = resolve_run(load("demo", overrides)).with_vocabulary()
    written = arguments(run, "demo")
    assert written is not None
    source, *changes = shlex.split(written)
    assert resolve_run(load(source, changes)).with_vocabulary() == run


def test_a_run_of_no_preset_or_of_a_lost_file_has_none(tmp_path: Path) -> None:
    run = resolve_run(load("demo")).with_vocabulary()
    assert arguments(run, None) is None
    assert arguments(run, str(tmp_path / "lost.yaml")) is None


def test_a_command_with_very_many_overrides_is_left_out() -> None:
    assert arguments(resolve_run(load("gpt2-124m")).with_vocabulary(), "demo") is None


def test_techniques_are_written_as_after_with() -> None:
    run = resolve_run(load("demo", ["optimizations=[bf16_mixed]"]))
    assert stack(run) == option("bf16_mixed") == "--with bf16_mixed"
    assert stack(resolve_run(load("demo"))) == ""
    assert option("a:b=1e-3") == "--with a:b=1e-3"
