"""`assay study`: from a file to the page, with a study, an executor and a metric that the package does not have."""

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

from assay.config import Home, ResolvedRun, load
from assay.errors import UsageError
from assay.estimator.timing.step_time import digest
from assay.executors import executors
from assay.files import write_file
from assay.hardware import detect
from assay.hardware.rates import step_times_file, with_step_times
from assay.hardware.step_times import StepTimes, depths
from assay.optimizations import catalogue
from assay.studies.folder import StudyFolder
from assay.studies.kinds import kinds
from support.children import Fake

from .conftest import TINY, Assay

TOY_STUDY = '''
from collections.abc import Iterator, Mapping
from typing import ClassVar

from assay.studies.base import Factor, Study


class Corners(Study):
    """The first and the last combination of two factors."""

    kind: ClassVar[str] = "corners"
    rates: tuple[str, ...]
    stacks: tuple[str, ...]

    def factors(self) -> tuple[Factor, ...]:
        return Factor("training.learning_rate", self.rates), Factor("optimizations", self.stacks)

    def combinations(self) -> Iterator[Mapping[str, str]]:
        for rate, stack in ((self.rates[0], self.stacks[0]), (self.rates[-1], self.stacks[-1])):
            yield {"training.learning_rate": rate, "optimizations": stack}
'''
TOY_EXECUTOR = '''
from dataclasses import replace
from typing import ClassVar

from assay.executors.base import Conducted, Executor, Work
from assay.executors.local import Local


class Backwards(Executor):
    """Runs the last wave first."""

    name: ClassVar[str] = "backwards"

    def run(self, work: Work) -> Conducted:
        return Local().run(replace(work, waves=reversed(list(work.waves))))
'''
TOY_METRIC = """
from assay.analysis.metrics import Metric

STEPS = Metric(
    name="trained_steps",
    title="steps trained",
    unit="count",
    better="higher",
    kind="exact",
    meaning="Number of steps that a run has trained.",
    of=lambda result: result.steps,
)
"""
LABEL = "rate 1e-3 · lion"


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of extensions."""
    files = (
        ("studies", "corners", TOY_STUDY),
        ("executors", "backwards", TOY_EXECUTOR),
        ("metrics", "steps", TOY_METRIC),
    )
    for kind, name, text in files:
        (tmp_path / "mine" / kind).mkdir(parents=True)
        (tmp_path / "mine" / kind / f"{name}.py").write_text(text)
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path / "mine"))
    return tmp_path / "mine"


@pytest.fixture
def file(tmp_path: Path, corpus: str) -> str:
    """A study of the toy kind."""
    path = tmp_path / "study.yaml"
    overrides = ", ".join((corpus, *TINY))
    path.write_text(
        f"kind: corners\nquestion: Does it work?\noverrides: [{overrides}]\nseeds: 2\nprocesses: 1\nblocks: 2\n"
        "rates: [1e-4, 1e-3]\nstacks: [none, lion]\n"
    )
    return str(path)


def test_a_toy_study_on_a_toy_executor_with_a_toy_metric_comes_to_its_page(
    assay: Assay, fake: Fake, toys: Path, file: str, home: Home
) -> None:
    said = assay("study", "run", file, "--executor", "backwards")
    assert said.code == 0, said.err
    assert LABEL in said.out
    assert "steps trained" in assay("study", "show", "last", "--full").out
    page = Path(said.out.splitlines()[-1])
    assert "optimizations=lion" in page.read_text()
    assert "Number of steps that a run has trained." in page.read_text()
    (listed,) = assay("study", "ls", "--json").value
    events = StudyFolder(home.reports / listed["id"]).events()
    first = next(one for one in events if one.event == "cell_start")
    assert first.cell.startswith("baseline, seed 1"), "the last wave ran first"
    assert (listed["kind"], listed["question"], listed["status"]) == ("corners", "Does it work?", "complete")
    assert (listed["cells"], listed["ended"]) == (6, 6)
    shown = assay("study", "show", "last").out
    assert LABEL in shown
    assert shown.splitlines()[-1] == str(page)
    assert assay("study", "show", "last", "--json").value["page"] == str(page)
    page.unlink()
    next_line = assay("study", "show", "last").out.splitlines()[-1]
    assert next_line == f"assay study report {page.parent.name}    writes its page"
    assert assay("study", "show", "last", "--json").value["page"] is None
    assert assay("study", "report", "last").out.strip() == str(page)
    assert page.exists()
    followed = assay("study", "follow", "last")
    assert "6 of 6 runs" in followed.err
    assert "is complete, 6 of 6 runs have ended" in followed.err
    assert assay("study", "resume", "last").code == 0


def test_a_factorial_has_every_combination(assay: Assay, fake: Fake, corpus: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    overrides = ", ".join((corpus, *TINY))
    path.write_text(
        f"kind: factorial\noverrides: [{overrides}]\nseeds: 1\nprocesses: 1\nblocks: 1\n"
        "vary:\n  training.learning_rate: [0.0001, 0.001]\n  optimizations: [none, lion]\n"
    )
    said = assay("study", "run", str(path), "--json")
    assert said.code == 0, said.err
    assert [row["treatment"] for row in said.value["rows"]] == [
        "training.learning_rate=0.0001, optimizations=lion",
        "training.learning_rate=0.001, optimizations=none",
        "training.learning_rate=0.001, optimizations=lion",
    ]


def test_a_new_file_is_planned_and_refused_a_second_time(
    assay: Assay, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = assay("study", "new", "mine", "--kind", "ladder")
    assert said.out.strip() == "mine.yaml"
    assert "`assay study plan mine.yaml`" in said.err
    again = assay("study", "new", "mine")
    assert (again.code, again.sentence()) == (2, "mine.yaml exists; choose another name")
    assert "did you mean 'ladder'" in assay("study", "new", "other", "--kind", "lader").sentence()
    for name in ("a/b", "two\nlines", "\x1b[31mred"):
        assert "is no name of a study" in assay("study", "new", name).sentence()
    spaced = assay("study", "new", "two words")
    assert "assay study plan 'two words.yaml'" in (tmp_path / spaced.out.strip()).read_text()


def test_a_plan_has_every_row_and_says_which_cannot_run(assay: Assay, home: Home, corpus: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    overrides = ", ".join((corpus, *TINY))
    path.write_text(
        f"kind: factorial\nquestion: Why?\noverrides: [{overrides}]\nseeds: 2\n"
        "vary:\n  optimizations: [none, {placebo: nothing}, fully_sharded, sgdd]\n"
        "expects: [{row: 'placebo: nothing', metric: step_seconds, change: none, size: 0.1}]\n"
    )
    said = assay("study", "plan", str(path))
    assert said.code == 0, said.err
    rows = {line.split("\t")[0]: line.split("\t") for line in said.out.splitlines() if "\t" in line}
    assert rows["baseline"][1] == "8"
    assert rows["placebo: nothing"][1:3] == ["4", rows["baseline"][2]]
    assert rows["fully_sharded"][-1].startswith("not possible: ")
    assert "unknown optimization 'sgdd'" in rows["sgdd"][-1]
    assert "2 of 4 can run" in said.out
    found = assay("study", "plan", str(path), "--json").value
    assert [row["processes"] for row in found["rows"]] == [8, 4, 4, 4]
    assert found["processes"] == 12 + found["drifts"]
    assert not list(home.runs.iterdir() if home.runs.exists() else ())


def test_a_plan_has_the_times_of_steps_that_are_timed_first(
    assay: Assay, home: Home, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ResolvedRun] = []

    def calibrate(runs: Iterable[ResolvedRun], home: Home, threads: int | None, *others: object) -> dict[str, str]:
        asked.extend(runs)
        found = {
            str(digest(run, "cpu")): StepTimes(depths=depths(run.model.n_layer), turns=((0.5,),) * 3) for run in asked
        }
        write_file(step_times_file(home), with_step_times(home, detect(), "cpu", found, threads))
        return {}

    monkeypatch.setattr("assay.studies.execution.ready.calibrate", calibrate)
    path = tmp_path / "study.yaml"
    path.write_text(
        f"kind: factorial\noverrides: [{', '.join((corpus, *TINY, 'model.n_layer=2'))}]\n"
        "vary: {training.learning_rate: [1e-3, 2e-3]}\n"
    )
    rows = [row["step_seconds"] for row in assay("study", "plan", str(path), "--calibrate", "--json").value["rows"]]
    assert rows == [0.5, 0.5]
    assert len({digest(run, "cpu") for run in asked}) == 1


def test_expectations_are_in_the_answer_and_on_the_page(assay: Assay, fake: Fake, corpus: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    overrides = ", ".join((corpus, *TINY))
    path.write_text(
        f"kind: comparison\nquestion: Is Lion lighter?\noverrides: [{overrides}]\nseeds: 1\n"
        "treatments: [lion]\n"
        "expects:\n  - {row: lion, metric: tensors_peak_bytes, change: lower, size: 0.9}\n"
        "  - {row: lion, metric: tensors_peak_bytes, change: none, size: 0.5}\n"
    )
    said = assay("study", "run", str(path), "--loss-only", "--full")
    assert said.code == 0, said.err
    assert re.search(r"^lion: tensors, peak lower by 90 % or more\t(refuted|not measured)\t", said.out, re.M), said.out
    sections = assay("study", "show", "last", "--json").value["sections"]
    one, other = sections["expectations"]
    refuted = [one["outcome"], other["outcome"]].count("refuted")
    of_them = f"{refuted} {'is' if refuted == 1 else 'are'} refuted (lion)."
    text = sections["answer"]["text"]
    assert of_them in text or (not refuted and "confirmed" in text)
    assert (one["row"], one["change"], one["size"]) == ("lion", "lower", 0.9)
    page = Path(said.out.splitlines()[-1]).read_text()
    assert "expectations" in " ".join(re.findall(r"<h2>(.*?)</h2>", page, flags=re.S)), "a heading is the finding"
    assert "Is Lion lighter?" in page


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: comparison\ntreatments: [lion]\nexpects: [{row: lio, metric: val_loss, change: lower}]", "mean 'lion'"),
        ("kind: comparison\ntreatments: [lion]\nexpects: [{row: lion, metric: loss, change: lower}]", "metric 'loss'"),
        ("kind: comparison\ntreatments: [lion]\nexpects: [{row: lion, metric: val_loss, change: less}]", "expects.0"),
        (
            "kind: comparison\ntreatments: [lion]\nexpects: [{row: lion, metric: val_loss, change: none}]",
            "needs a size",
        ),
        ("kind: comparison\ntreatments: [lion]\nweights: {step_secnds: 1}", "mean 'step_seconds'"),
        ("kind: comparison\ntreatments: [lion]\nweights: {step_seconds: -1}", "a weight is a number from 0 on"),
        ("kind: comparison\ntreatments: [lion]\nweights: {step_seconds: fast}", "weights.step_seconds"),
        ("kind: comparison\ntreatments: [lion]\nranking: walsh", "ranking names the formula 'walsh'"),
        ("kind: comparison\ntreatments: [lion]\ntarget_loss: -1", "target_loss"),
        ("seeds: 1", "it has no key kind; there are comparison, factorial, fractional, isoflop, ladder"),
        ("kind: [factorial]", "did you mean 'factorial'"),
        ("kind: factorial\nvary: {seed: [7, 8]}", "seed cannot be varied"),
        ("kind: factorial\nseeds: yes\nvary: {optimizations: [none, lion]}", "it should be a number"),
        ("kind: factorial\nkind: comparison", "has the key 'kind' twice, again in line 2"),
        ("kind: factoral", "did you mean 'factorial'"),
        ("kind: factorial", "vary: field required"),
        ("kind: factorial\nvary: {}", "vary: "),
        ("kind: factorial\nvary: {optimizations: [none]}", "has nothing to compare with its control"),
        ("kind: factorial\nvary: {optimizations: [none, none]}", "are the same run"),
        ("kind: factorial\nvary: {optimizations: [none, sgdd]}", "unknown optimization 'sgdd'"),
        ("kind: factorial\nvary: {training.learing_rate: [1, 2]}", "did you mean 'training.learning_rate'"),
        ("kind: factorial\nsize: 3", "vary: field required"),
        ("kind: comparison", "there is nothing to compare"),
        ("kind: comparison\ntreatments: [lion]\nseeds: 0", "seeds=0 is not possible"),
        ("kind: comparison\ntreatments: [lion]\nblocks: 0", "blocks: input should be greater than or equal to 1"),
        ("kind: comparison\ntreatments: [lion]\ntimeout: 0", "timeout: input should be greater than 0"),
        ("kind: comparison\ntreatments: [lion]\nseeds: 1000000", "a row has at most 10000"),
        ("kind: ladder\nrungs: ['training.steps=3 y']", "has 'y'; write key=value"),
        ("kind: comparison\ntreatments: [lion]\npublished: {library: fahey, repeats: 5}", "repeats is 5; give"),
        (
            "kind: comparison\ntreatments: [lion]\npublished: {library: fahey, wrong: abc}",
            "wrong is 'abc'; give a list",
        ),
        ("kind: random\ntrials: 2\nspace: {training.steps: {low: a, high: 3}}", "space.training.steps.low: "),
        ("kind: comparison\nquestion: 0.1", "question: 0.1 is not read as a text; write it in quotes"),
        ("[1, 2]", "must be a mapping"),
        ("kind: [", "cannot be read as YAML"),
    ],
)
def test_a_faulty_file_is_one_sentence_and_leaves_nothing(
    assay: Assay, home: Home, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    said = assay("study", "run", str(path))
    assert said.code == 2
    assert says in said.sentence()
    assert not home.root.exists()


@pytest.mark.parametrize("words", [("show", "last"), ("report", "x"), ("follow", "x"), ("resume", "x")])
def test_without_studies_there_is_a_sentence(assay: Assay, home: Home, words: tuple[str, str]) -> None:
    said = assay("study", *words)
    assert said.code == 2
    assert "there are no studies" in said.sentence()
    assert not home.root.exists()


def test_an_unknown_executor_is_a_sentence(assay: Assay, fake: Fake, toys: Path, file: str, home: Home) -> None:
    said = assay("study", "run", file, "--executor", "slrum")
    assert said.code == 2
    assert "there is no executor 'slrum'" in said.sentence()
    assert not home.root.exists()


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ('{"training.learning_rate": "3e-3"}', "which its factors do not declare"),
        ('{"training.batch_size": "3"}', "its factors are training.learning_rate"),
        ('{"training.learning_rate": 1e-3}', "levels are texts"),
    ],
)
def test_a_kind_that_combines_what_it_does_not_declare_is_refused(
    assay: Assay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: str, says: str
) -> None:
    (tmp_path / "extensions" / "studies").mkdir(parents=True)
    (tmp_path / "extensions" / "studies" / "corners.py").write_text(
        "from assay.studies.base import Factor, Study\n"
        "class Corners(Study):\n"
        "    kind = 'corners'\n"
        "    def factors(self):\n"
        "        return (Factor('training.learning_rate', ('1e-3', '2e-3')),)\n"
        "    def combinations(self):\n"
        "        yield {'training.learning_rate': '1e-3'}\n"
        f"        yield {levels}\n"
    )
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path / "extensions"))
    (tmp_path / "study.yaml").write_text("kind: corners")
    said = assay("study", "run", str(tmp_path / "study.yaml"))
    assert said.code == 2
    assert says in said.sentence()


def test_a_fault_of_an_extension_names_its_file_and_line(
    assay: Assay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "extensions" / "studies").mkdir(parents=True)
    file = tmp_path / "extensions" / "studies" / "broken.py"
    file.write_text(
        "from assay.studies.base import Factor, Study\n"
        "class Broken(Study):\n"
        "    kind = 'broken'\n"
        "    def factors(self):\n"
        "        return self.missing\n"
        "    def combinations(self):\n"
        "        return iter(())\n"
    )
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path / "extensions"))
    (tmp_path / "study.yaml").write_text("kind: broken")
    said = assay("study", "run", str(tmp_path / "study.yaml"))
    assert said.code == 2
    assert f"{file}, line 5: AttributeError" in said.sentence()


@pytest.mark.parametrize(
    ("folder", "code", "says"),
    [
        ("studies", "from assay.studies.base import Study\nclass Mine(Study):\n    pass", "Mine.kind is missing"),
        (
            "studies",
            "from assay.studies.base import Study\nclass Mine(Study):\n    kind = 'mine'",
            "Mine has to define the methods combinations, factors",
        ),
        (
            "executors",
            "from assay.executors.base import Executor\nclass Mine(Executor):\n    name = 'mine'",
            "Mine has to define the method run",
        ),
        (
            "executors",
            "from assay.executors.local import Local\nclass Mine(Local):\n    pass",
            "defines the executor 'local', which exists",
        ),
        (
            "optimizations",
            "from assay.optimizations.lion import Lion\nfrom assay.optimizations import Optimization\n"
            "class Mine(Optimization):\n    title = saves = pays = 'x'\n    sources = ()\n"
            "    stage, numerics = Lion.stage, Lion.numerics",
            "Mine has to define the methods apply, predict, verify",
        ),
    ],
)
def test_an_extension_that_lacks_something_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, code: str, says: str
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "mine.py").write_text(f"{code}\n")
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path))
    with pytest.raises(UsageError, match=rf"mine\.py.*{says}"):
        {"studies": kinds, "executors": executors, "optimizations": catalogue}[folder]()


def test_the_recipes_of_contributing_are_code_that_works(
    assay: Assay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    blocks = [textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)]
    _, study, executor, page = blocks
    for folder, code in (("studies", study), ("executors", executor)):
        (tmp_path / "extensions" / folder).mkdir(parents=True)
        (tmp_path / "extensions" / folder / "mine.py").write_text(code)
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path / "extensions"))
    rows = kinds()["ends"].model_validate({"rates": ("1e-3", "2e-3", "3e-3")}).rows(load("demo"))
    assert [row.levels["training.learning_rate"] for row in rows] == ["1e-3", "3e-3"]
    assert executors()["backwards"].name == "backwards"
    shown: dict[str, str] = {}
    exec(page, shown)
    assert "<table>" in shown["text"]


def test_a_study_without_times_waits_for_no_rates_and_runs_each_seed_once(
    assay: Assay, fake: Fake, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*given: object, **more: object) -> None:
        pytest.fail("the machine's rates were measured")

    monkeypatch.setattr("assay.studies.execution.ready.measured_machine", measured)
    path = tmp_path / "study.yaml"
    path.write_text(f"kind: comparison\noverrides: [{', '.join((corpus, *TINY))}]\nseeds: [3, 8]\ntreatments: [lion]\n")
    said = assay("study", "run", str(path), "--loss-only", "--json")
    assert said.code == 0, said.err
    runs = assay("runs", "ls", "--json").value
    assert len([run for run in runs if not run["nudge"]]) == 2 * 3  # the control twice, and the other row
    assert {run["study"] for run in runs} == {said.value["id"]}
    assert assay("runs", "ls").out.count("\n") == 2
    assert len(assay("runs", "ls", "--cells").out.splitlines()) == 1 + len(runs)
