"""Every wrong variant of a technique is caught by the proof, and every honest run passes it.

The usual suite tries one mutant of each technique on one device, and of three over ranks, except where a compiler
would be needed. `slow` tries all that a CPU runs, and prints how many need a GPU. These are marked `gpu`.
`benchmarks/mutations.py` writes the table.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from assay.errors import UsageError
from assay.hardware import detect
from assay.optimizations import Stage, catalogue, optimizations_of
from optimizations.mutations import harness
from optimizations.mutations.judgement import Judgement, Named, judged
from optimizations.mutations.named import HONEST, mutants_of, run_of

_FEWEST = 4
PROVEN = (*catalogue(), "wsd")
"""Techniques, and a schedule."""


def _all(*, gpu: bool) -> list[Named]:
    return [(name, one) for name in PROVEN for one in mutants_of(name).values() if one.gpu is gpu]


def _compiles(technique: str) -> bool:
    return technique in catalogue() and catalogue()[technique].stage is Stage.COMPILE


FIRST = [
    next(one for one in _all(gpu=False) if one[0] == name)
    for name in dict.fromkeys(name for name, _ in _all(gpu=False))
    if not _compiles(name)
]
"""The first of each technique's."""
OVER_RANKS = ("data_parallel", "fully_sharded", "pipeline_parallel")
"""Techniques over two ranks whose mutants the usual suite tries: each takes seconds."""
QUICK = [one for one in FIRST if run_of(*one).ranks == 1 or one[0] in OVER_RANKS]


def _named(chosen: list[Named]) -> list[Any]:
    return [pytest.param(one, id=f"{one[0]}: {one[1].name}") for one in chosen]


@pytest.fixture(scope="module")
def over_ranks(tmp_path_factory: pytest.TempPathFactory) -> Mapping[Named, Judgement]:
    """The quick ones that take two ranks, judged together."""
    chosen = [one for one in QUICK if run_of(*one).ranks > 1]
    return dict(zip(chosen, judged(chosen, tmp_path_factory.mktemp("ranks")), strict=True))


def test_every_technique_has_four() -> None:
    assert {name: len(mutants_of(name)) for name in PROVEN if len(mutants_of(name)) < _FEWEST} == {}


def test_each_says_what_is_wrong_in_one_sentence() -> None:
    for technique in PROVEN:
        for one in mutants_of(technique).values():
            assert one.says.endswith("."), (technique, one.name)
            assert ". " not in one.says, (technique, one.name)
            assert len(one.says.split()) <= 25, (technique, one.name)


def test_each_still_fits_the_source() -> None:
    for technique in PROVEN:
        for one in mutants_of(technique).values():
            with pytest.MonkeyPatch.context() as patch:
                one.break_it(patch)


@pytest.mark.parametrize("one", _named(QUICK))
def test_one_of_each_technique_is_caught(one: Named, request: pytest.FixtureRequest, tmp_path: Any) -> None:
    over = run_of(*one).ranks > 1
    _expect_caught(request.getfixturevalue("over_ranks")[one] if over else judged([one], tmp_path)[0])


@pytest.mark.slow
@pytest.mark.parametrize("technique", PROVEN)
def test_all_are_caught(technique: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    chosen, left = ([one for one in _all(gpu=gpu) if one[0] == technique] for gpu in (False, True))
    with capsys.disabled():
        print(f"\n{technique}: {len(chosen)} mutants{f', {len(left)} not run without a GPU' if left else ''}")
    for one in judged(chosen, tmp_path):
        _expect_caught(one)


@pytest.mark.slow
@pytest.mark.parametrize("technique", [name for name in catalogue() if not _compiles(name)])
def test_honest_runs_with_dropout_are_proven_to_their_end(technique: str, tmp_path: Any) -> None:
    _expect_proven(technique, tmp_path)


def test_an_honest_run_with_dropout_is_proven_to_its_end(tmp_path: Any) -> None:
    _expect_proven("activation_checkpointing", tmp_path)


ON_A_GPU = [one for one in _all(gpu=True) if run_of(*one).ranks == 1]
BY_TRACE = {
    ("tf32", "not allowed"),
    ("tf32", "forward only"),
    ("tf32", "bfloat16"),
    ("tf32", "never put back"),
    ("tf32", "not allowed late"),
    ("activation_offload", "weights along"),
    ("activation_offload", "small ones stay"),
    ("activation_offload", "nothing moves"),
    ("activation_offload", "stays late"),
    ("cuda_graphs", "launched late"),
    ("pinned_prefetch", "nothing ahead"),
    ("pinned_prefetch", "nothing ahead late"),
}
"""Mutants that a trace shows without any value: the technique does nothing in some step."""


@pytest.mark.gpu
@pytest.mark.device_values("values of steps are held against references")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("one", _named(ON_A_GPU))
def test_all_on_a_gpu_are_caught(one: Named, tmp_path: Any) -> None:
    _expect_caught(judged([one], tmp_path)[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("one", _named(ON_A_GPU))
def test_a_trace_on_a_gpu_catches_what_does_nothing(one: Named, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of the proof that ask for values are left out, so an absent GPU can run it."""
    for part, says_nothing in {"_checked": None, "unmoved_parameters": (), "state_fault": ""}.items():
        monkeypatch.setattr(harness, part, lambda *given, said=says_nothing: said)
    (found,) = judged([one], tmp_path)
    assert found.control.failures == []
    assert bool(found.parts) is ((one[0], one[1].name) in BY_TRACE), found.broken.failures


def _expect_proven(technique: str, place: Any) -> None:
    run = run_of(technique, HONEST)
    try:
        for one in optimizations_of(run):
            one.check(run, detect())
    except UsageError as reason:
        pytest.skip(str(reason))
    (found,) = judged([(technique, HONEST)], place)
    assert found.control.failures == []


def _expect_caught(one: Judgement) -> None:
    said = f"{one.technique}: {one.mutant.says}"
    assert one.control.failures == [], f"the honest run is not proven, beside {said}"
    assert one.changes, f"this changes nothing: {said}"
    assert one.parts, f"this passed the proof: {said}"
