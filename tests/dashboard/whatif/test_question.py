"""Addresses of questions: what they keep, what they refuse, and the commands that answer the same."""

import json
import shlex
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from assay.config.home import Home
from assay.config.loading import presets
from assay.dashboard.whatif.answer import answer
from assay.dashboard.whatif.question import commands, cutting, read, search_command
from assay.errors import UsageError
from assay.estimator.capacity import Capacity
from assay.files import write_file
from assay.hardware.detect import detect
from assay.hardware.rates import rates_file, with_rates
from assay.report.kit.view import Shown
from support.machines import MEASURED


def test_an_address_keeps_a_question() -> None:
    asked = {"preset": "gpt2-124m", "layers": "6", "with": "bf16_mixed+lion", "micro": "4", "device": "h100"}
    question = read(asked)
    assert question.run().model.n_layer == 6
    assert {str(one) for one in question.run().optimizations} >= {"bf16_mixed", f"{cutting()}:micro_batches=4"}
    assert read(dict(parse_qsl(question.query))) == question


def test_a_plus_sign_that_a_person_types_into_a_link_joins_a_stack() -> None:
    typed = dict(parse_qsl("preset=gpt2-124m&with=sdpa_attention+bf16_mixed"))
    assert read(typed) == read({"preset": "gpt2-124m", "with": "sdpa_attention+bf16_mixed"})


def test_numbers_of_the_preset_are_left_out() -> None:
    assert read({"preset": "gpt2-124m", "layers": "12", "width": "768"}).changes == ()
    assert read({}).query == "preset=demo"


def test_the_vocabulary_of_every_preset_is_known() -> None:
    unknown = [name for name in presets() if read({"preset": name}).run().with_vocabulary().model.vocab_size is None]
    assert unknown == []


def test_micro_batches_within_a_stack_become_those_of_the_menu() -> None:
    question = read({"with": f"lion+{cutting()}:micro_batches=2"})
    assert (question.stack, question.micro) == ("lion", 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("preset", "../../etc/passwd"),
        ("preset", "/etc/passwd"),
        ("device", "mi300x"),
        ("device", "abacus"),
        ("layers", "-1"),
        ("layers", "1e3"),
        ("layers", "٣"),
        ("layers", "9" * 5000),
        ("layers", "000000000001" + "9" * 5000),
        ("batch", "0"),
        ("gpus", "2"),
        ("with", "lion+" * 2000),
        ("with", f"{cutting()}:micro_batches=1"),
        ("with", "streaming:path=/etc"),
        ("with", "lion+streaming:dataset=glue"),
    ],
)
def test_an_impossible_request_is_one_short_sentence(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        read({name: value})
    assert len(str(caught.value)) < 500


def test_fields_that_name_no_file_are_kept() -> None:
    stack = "sdpa_attention:backend=math+selective_checkpointing:policy=matmuls"
    assert read({"with": stack}).stack == stack


QUESTIONS = (
    {},
    {"preset": "demo", "batch": "16", "with": "bf16_mixed"},
    {"preset": "demo", "device": "a100", "with": "bf16_mixed", "micro": "2"},
    {"preset": "demo", "device": "h100", "gpus": "4", "with": "data_parallel"},
)


@pytest.mark.parametrize("query", QUESTIONS)
def test_assay_answers_each_command(query: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.cli.main import app

    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    monkeypatch.setattr(
        "assay.api.recommending.capacity", lambda *given, **options: Capacity((), 1, "tensors")
    )  # it searches for minutes
    lines = [shlex.split(line) for _, line in commands(read(query))]
    assert all(program == "assay" for program, *_ in lines)
    for _, *words in lines:
        if words[0] != "train":
            assert not app([*words, "--json"], standalone_mode=False), words


@pytest.mark.parametrize("query", [*QUESTIONS, {"preset": "gpt2-124m", "device": "rtx4090", "with": "bf16_mixed"}])
def test_the_first_command_has_the_figures_that_are_shown(
    query: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.cli.main import app

    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    home = Home(tmp_path)
    home.ready()
    rates = MEASURED.model_copy(update={"matmul_flops": MEASURED.matmul_flops | {"bfloat16": 1e11}})
    write_file(rates_file(home), with_rates(rates_file(home), detect(), {"cpu": rates}))
    question = read(query)
    shown = answer(question, home).predicted
    assert shown is not None
    _, *words = shlex.split(commands(question)[0][1])
    assert not app([*words, "--json"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert told["step_seconds"] == shown.time.seconds is not None
    if question.gpus == 1:  # the ledger's figure; a plan of several counts coarser
        assert told["tensors_peak_bytes"] == shown.found.timeline.peak.nbytes


def test_the_search_is_a_command_that_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.cli.main import app

    asked: list[dict[str, object]] = []
    monkeypatch.setattr(
        "assay.api.recommending.recommend", lambda *words, **options: asked.append(options) or Nothing(None)
    )
    for query in QUESTIONS[:3]:
        _, *words = shlex.split(search_command(read(query), 8 * 10**9))
        assert not app([*words, "--json"], standalone_mode=False)
    answers = [(one["memory_bytes"], one["device"], one["calibrate"]) for one in asked]
    assert answers == [(8 * 10**9, None, 90.0)] * 2 + [(None, "a100", None)]


class Nothing(Shown[None]):
    """What is shown of a recommendation without content."""

    def values(self) -> dict[str, object]:
        return {}


def test_only_this_machine_trains() -> None:
    trains = [any(" train " in line for _, line in commands(read(query))) for query in QUESTIONS]
    assert trains == [True, True, False, False]
