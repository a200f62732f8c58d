"""Answers are those of `assay estimate`: memory by category, time with its source, what fits, and what can be added."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from assay.api import estimate_every_rank
from assay.config.home import Home
from assay.cost.simulation.reserved import Interval
from assay.dashboard.whatif.answer import Timing, WhatIfAnswer, WhatIfPrediction, answer, fitting, fullest
from assay.dashboard.whatif.places import WhatIfFit, absent, fit_sentence, fit_words
from assay.dashboard.whatif.question import WhatIfQuestion, read
from assay.files import write_file
from assay.hardware.detect import detect
from assay.hardware.rates import rates_file, with_rates
from assay.report.predictions import SHEET_ROOFLINE
from support.machines import MEASURED


def asked(**query: str) -> WhatIfQuestion:
    return read({("with" if name == "stack" else name): value for name, value in query.items()})


def answered(home: Path, **query: str) -> WhatIfAnswer:
    return answer(asked(**query), Home(home))


def fitted(home: Path, **query: str) -> dict[str, WhatIfFit]:
    return {one.device: one for one in fitting(asked(**query), Home(home))}


def predicted(home: Path, **query: str) -> WhatIfPrediction:
    found = answered(home, **query)
    assert found.predicted is not None, found.refusal
    return found.predicted


def facts(found: WhatIfAnswer) -> dict[str, str]:
    return dict(found.facts.rows)


@pytest.mark.parametrize("stack", ["", "sdpa_attention+bf16_mixed", "activation_checkpointing"])
def test_the_categories_of_each_instant_sum_to_its_bytes(stack: str, tmp_path: Path) -> None:
    found = predicted(tmp_path, stack=stack, device="a100")
    moments = found.found.timeline.instants
    columns = zip(*(layer["bytes"] for layer in found.memory["layers"]), strict=True)
    assert [sum(column) for column in columns] == [moment.nbytes for moment in moments]
    assert moments[found.memory["peak"]].nbytes == found.memory["peak_bytes"] == found.found.timeline.peak.nbytes


@pytest.mark.parametrize(
    "stack",
    [
        "data_parallel",
        "fully_sharded",
        "tensor_parallel",
        *(f"pipeline_parallel:schedule={one}" for one in ("gpipe", "1f1b")),
    ],
)
def test_the_first_rank_of_each_stage_stands_for_all(stack: str) -> None:
    question = read({"device": "a100", "gpus": "2", "with": stack, "layers": "4"})
    changes = (*question.overrides, *question.ranks)
    every = estimate_every_rank(question.preset, *changes, optimizations=stack, machine=absent("a100"))
    assert fullest(question, absent("a100")).timeline.peak.nbytes == every.fullest.timeline.peak.nbytes


def test_the_time_says_what_it_rests_on(tmp_path: Path) -> None:
    assert "assay machine" in facts(answered(tmp_path))["step time"]
    home = Home(tmp_path)
    home.ready()
    write_file(rates_file(home), with_rates(rates_file(home), detect(), {"cpu": MEASURED}))
    assert "measured on this machine" in facts(answered(tmp_path))["step time"]
    assert "measured on one H200, in proportion" in facts(answered(tmp_path, device="h100"))["step time"]
    offloaded = facts(answered(tmp_path, device="h100", stack="activation_offload"))
    assert "datasheet's peaks" in offloaded["step time"]
    several = facts(answered(tmp_path, device="h100", gpus="2", stack="data_parallel"))
    assert "plan from datasheets" in several["step time"]
    assert "not planned" in facts(answered(tmp_path, device="l4", gpus="2", stack="data_parallel"))["step time"]


def test_a_larger_batch_takes_more_and_fits_on_fewer_devices(tmp_path: Path) -> None:
    questions = [{"preset": "gpt2-124m", "batch": batch, "device": "a100"} for batch in ("1", "16")]
    less, more = (predicted(tmp_path, **one) for one in questions)
    assert less.memory["peak_bytes"] < more.memory["peak_bytes"]
    counts = [sum(one.verdict == "fits" for one in fitted(tmp_path, **query).values()) for query in questions]
    assert counts[0] > counts[1] > 0


@pytest.mark.parametrize("query", [{}, {"device": "l4"}, {"device": "h100", "gpus": "2", "stack": "data_parallel"}])
def test_an_answer_has_the_row_of_its_own_device(query: dict[str, str], tmp_path: Path) -> None:
    given = {"preset": "gpt2-124m", "batch": "2", **query}
    found = answered(tmp_path, **given)
    assert found.predicted is not None
    own = found.predicted.fit
    assert fitted(tmp_path, **given)[own.device] == own
    assert facts(found)[own.device] == fit_words(own)
    assert fit_words(own).startswith("fits: ")


def test_the_fit_is_that_of_assay_capacity(tmp_path: Path) -> None:
    """A device fits by the high end of its need, which is what the command counts."""
    from assay.estimator.capacity import peak_bytes

    question = read({"preset": "gpt2-124m", "device": "l4", "batch": "2"})
    row = fitted(tmp_path, preset="gpt2-124m", device="l4", batch="2")["L4"]
    assert row.need is not None
    assert row.need.high == peak_bytes(question.run(), absent("l4"), "device")


def test_a_device_without_bfloat16_says_so(tmp_path: Path) -> None:
    rows = fitted(tmp_path, stack="bf16_mixed", device="a100")
    (old,) = (one for name, one in rows.items() if name.startswith("V100"))
    assert old.need is None
    assert "Ampere" in old.verdict
    assert "Ampere" in answered(tmp_path, stack="bf16_mixed", device="v100").refusal


def test_a_technique_that_does_not_go_with_the_stack_says_why(tmp_path: Path) -> None:
    found = {one.name: one for one in answered(tmp_path, stack="lion").techniques}
    assert found["lion"].on
    assert "optimizer" in found["sgd"].why_not
    assert not found["bf16_mixed"].why_not
    assert "rank" in found["data_parallel"].why_not


def test_a_stack_that_is_not_possible_can_be_changed(tmp_path: Path) -> None:
    found = answered(tmp_path, stack="lion+sgd")
    assert found.predicted is None
    assert "choose one" in found.refusal
    assert not any(one.why_not for one in found.techniques)


def test_techniques_of_the_preset_stay_on(tmp_path: Path) -> None:
    fixed = {one.name for one in answered(tmp_path, preset="scaling-stdlib").techniques if one.fixed}
    assert fixed == {"sdpa_attention", "fused_adamw"}


def test_an_answer_is_kept_until_the_rates_change(tmp_path: Path) -> None:
    first = answered(tmp_path)
    assert answered(tmp_path) is first
    home = Home(tmp_path)
    home.ready()
    write_file(rates_file(home), with_rates(rates_file(home), detect(), {"cpu": MEASURED}))
    assert answered(tmp_path) is not first


def test_a_step_without_a_prediction_fits_nowhere_and_several_gpus_are_not_here(tmp_path: Path) -> None:
    assert fitted(tmp_path, stack="lion+sgd") == {}
    here, *_ = fitted(tmp_path)
    assert here.startswith("this machine")
    several = fitted(tmp_path, device="a100", gpus="2", stack="data_parallel")
    assert several
    assert not any(name.startswith("this machine") for name in several)


def test_the_need_of_a_captured_graph_is_not_predicted(tmp_path: Path) -> None:
    rows = fitted(tmp_path, stack="cuda_graphs", device="a100").values()
    assert all(one.need is None and "captured graphs" in one.why_not for one in rows if "A100" in one.device)


ASK = """
import random, sys
import psutil
from assay.config import Home
from assay.dashboard import collect_rarely
from assay.dashboard.whatif.answer import answer, fitting
from assay.dashboard.whatif.question import read
drawn, home = random.Random(0), Home(sys.argv[1])
collect_rarely()
for _ in range(90):
    layers, batch = str(drawn.randrange(2, 129)), str(drawn.randrange(1, 65))
    stack = drawn.choice(["", "compile", "sdpa_attention+bf16_mixed", "activation_checkpointing"])
    question = read({"preset": "gpt2-124m", "device": "a100", "layers": layers, "batch": batch, "with": stack})
    answer(question, home)
    fitting(question, home)
print(psutil.Process().memory_info().rss)
"""


@pytest.mark.slow
def test_many_more_questions_than_are_kept_take_at_most_130_megabytes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ASK, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 130e6, "169 MB with 32 answers kept, 98 MB with 8"


FITS = r"It fits one A100 40 GB with [\d.]+ GiB to spare, about \d+ ms a step\."
FITS_NOT = r"It does not fit one L4, which would need [\d.]+ GiB to [\d.]+ GiB more, about .* a step\."
UNPLANNED = r"It fits each of 2 RTX 4090 .*; how long a step takes is not planned: .*\."
UNKNOWN = r"Whether it fits one A100.* is not known: captured graphs .*"
UNTIMED = r"It fits this machine with .*; how long a step takes is not predicted: `assay machine` .*\."


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"preset": "gpt2-124m", "device": "a100-40gb"}, FITS),
        ({"preset": "llama-3.1-8b", "device": "l4"}, FITS_NOT),
        ({"preset": "gpt2-124m", "device": "rtx4090", "gpus": "2", "stack": "data_parallel"}, UNPLANNED),
        ({"stack": "cuda_graphs", "device": "a100"}, UNKNOWN),
        ({}, UNTIMED),
        ({"stack": "lion+sgd"}, r".*lion.*"),
    ],
)
def test_an_answer_is_a_sentence(query: dict[str, str], said: str, tmp_path: Path) -> None:
    assert re.fullmatch(said, answered(tmp_path, **query).sentence)


def test_a_need_near_the_memory_may_fit() -> None:
    near = WhatIfFit("a device", 10 * 2**30, Interval(9 * 2**30, 11 * 2**30))
    assert fit_sentence(near, "one device") == (
        "It may fit one device, or just not: it needs 9.00 GiB to 11.0 GiB of 10.0 GiB"
    )


def test_a_roofline_is_a_bound() -> None:
    assert Timing(0.05, "50 ms", SHEET_ROOFLINE).words == ", at least 50.0 ms a step."
