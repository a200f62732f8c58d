"""Recommendations: one search at a time, the newest question next, and what is known at once."""

import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.api.recommending import MAX_LOSS_CHANGE
from assay.config.home import Home
from assay.dashboard.whatif import recommendation
from assay.dashboard.whatif.content import recommended_values
from assay.dashboard.whatif.question import WhatIfQuestion
from assay.dashboard.whatif.recommendation import Recommended, Recommender, search_recommendation
from assay.optimizations.optimization import Numerics
from assay.report.kit.blocks import Facts

ON_GPU = WhatIfQuestion(device="a100")


class Searches:
    """Searches that end when they are let; the early ones say so, and nothing more is known of their questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[WhatIfQuestion] = []
        self.early: list[WhatIfQuestion] = []
        self.at_once = self.most = 0
        self.gate = threading.Semaphore(0)
        self.first = Recommended("refused", refusal="nothing fits")
        monkeypatch.setattr(recommendation, "search_recommendation", self)

    def __call__(self, question: WhatIfQuestion, home: Home, most_loss: float = MAX_LOSS_CHANGE) -> Recommended:
        if most_loss < MAX_LOSS_CHANGE:
            self.early.append(question)
            return self.first
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.asked.append(question)
        assert self.gate.acquire(timeout=10)
        self.at_once -= 1
        if question.preset == "llama-tiny":
            raise ValueError("a fault")
        return Recommended("found", ("an answer",), "lion", question)


def until(recommender: Recommender, question: WhatIfQuestion) -> Recommended:
    end = time.monotonic() + 10
    while (found := recommender.ask(question)).state == "searching":
        assert time.monotonic() < end
        time.sleep(0.005)
    return found


def test_one_search_at_a_time_and_the_newest_question_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, recommender = Searches(monkeypatch), Recommender(Home(tmp_path))
    several = [replace(ON_GPU, changes=(("batch", batch),)) for batch in (1, 2, 4, 8)]
    assert [recommender.ask(one).state for one in several] == ["searching"] * 4
    for _ in several:
        searches.gate.release()
    found = until(recommender, several[3])
    assert found.of == several[3]
    assert searches.asked == [several[0], several[3]]
    assert searches.most == 1


def test_another_stack_has_the_same_recommendation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, recommender = Searches(monkeypatch), Recommender(Home(tmp_path))
    searches.gate.release()
    found = until(recommender, ON_GPU)
    assert recommender.ask(replace(ON_GPU, stack="lion", micro=2)) is found
    assert len(searches.asked) == 1


def test_the_nearest_answer_is_shown_while_a_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, recommender = Searches(monkeypatch), Recommender(Home(tmp_path))
    searches.gate.release()
    until(recommender, ON_GPU)
    larger = replace(ON_GPU, changes=(("batch", 64),))
    early = recommender.ask(larger)
    assert (early.state, early.of, early.blocks) == ("searching", ON_GPU, ("an answer",))
    assert recommender.ask(replace(larger, device="h100")).blocks == ()
    searches.gate.release(2)
    assert until(recommender, larger).of == larger


def test_the_first_question_has_a_preliminary_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, recommender = Searches(monkeypatch), Recommender(Home(tmp_path))
    searches.first = Recommended("found", ("a first answer",), "sdpa_attention", ON_GPU, command="assay recommend")
    end = time.monotonic() + 10
    while not (early := recommender.ask(ON_GPU)).blocks:
        assert time.monotonic() < end
        time.sleep(0.005)
    assert (early.state, early.blocks, early.preliminary) == ("searching", ("a first answer",), True)
    shown = recommended_values(early, ON_GPU)["html"]
    assert "A preliminary answer" in shown
    assert "assay recommend" not in shown  # it would search all stacks
    searches.gate.release()
    found = until(recommender, ON_GPU)
    assert (found.blocks, found.preliminary) == (("an answer",), False)
    assert "preliminary" not in recommended_values(found, ON_GPU)["html"]


def test_no_search_is_made_twice_where_a_near_answer_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, recommender = Searches(monkeypatch), Recommender(Home(tmp_path))
    searches.gate.release(2)
    until(recommender, ON_GPU)
    until(recommender, replace(ON_GPU, changes=(("batch", 64),)))
    assert searches.early == [ON_GPU]


def test_a_preliminary_answer_adds_no_loss(tmp_path: Path) -> None:
    question = WhatIfQuestion(preset="gpt2-124m", changes=(("layers", 1),), device="a100")

    def loss(found: Recommended) -> str:
        sentence, facts, *_ = found.blocks
        assert str(sentence).startswith("gpt2-124m fits one A100 80 GB ")
        assert isinstance(facts, Facts)
        return dict(facts.rows)["loss"]

    assert loss(search_recommendation(question, Home(tmp_path), most_loss=0.0)) == Numerics.REASSOCIATED.value
    assert loss(search_recommendation(question, Home(tmp_path))) == Numerics.LOSSY.value


def test_a_fault_of_a_search_ends_no_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches, recommender = Searches(monkeypatch), Recommender(Home(tmp_path))
    searches.gate.release(2)
    assert until(recommender, replace(ON_GPU, preset="llama-tiny")).state == "refused"
    assert until(recommender, ON_GPU).state == "found"


def test_a_search_without_rates_says_what_to_do_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.Popen", lambda *given, **options: pytest.fail("a process is started"))
    found = search_recommendation(WhatIfQuestion(), Home(tmp_path))
    assert found.state == "refused"
    assert "assay machine" in found.refusal


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"gpus": 2}, "one GPU"), ({"changes": (("heads", 7),)}, "not divisible"), ({"stack": "lion+sgd"}, "")],
)
def test_an_impossible_search_is_refused_at_once(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches, recommender = Searches(monkeypatch), Recommender(Home(tmp_path))
    assert recommender.ask(ON_GPU).state == "searching"
    found = recommender.ask(replace(ON_GPU, **changes))
    # A stack is no part of the search, so one that is refused bars no recommendation.
    assert (found.state, said in found.refusal) == ("refused" if said else "searching", True)
    searches.gate.release(2)
    assert until(recommender, ON_GPU).of == ON_GPU


SEARCH = """
import sys, time
from pathlib import Path
import psutil
from assay.config import Home
from assay.dashboard import collect_rarely
from assay.dashboard.whatif.question import WhatIfQuestion
from assay.dashboard.whatif.recommendation import Recommender
collect_rarely()
asker, highest = Recommender(Home(Path(sys.argv[1]))), 0
for number in range(24):
    preset = ("demo", "gpt2-124m", "llama-tiny")[number % 3]
    question = WhatIfQuestion(preset, (("batch", 8 + number),), device="a100")
    while asker.ask(question).state == "searching":
        time.sleep(0.2)
    highest = max(highest, psutil.Process().memory_info().rss)
print(highest)
"""


@pytest.mark.slow
def test_many_searches_take_at_most_300_megabytes(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SEARCH, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300e6
