"""The pages that people read are true: generated pages are current, and every command and link in them is possible."""

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner

from assay.api import configure, plan
from assay.cli.main import app
from assay.hardware import Machine
from assay.hardware.devices import DEVICES
from assay.optimizations import check, mesh_of
from assay.scaling.published import BESIROGLU
from support.docs import DOCS, program

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", DOCS / "commands.md", DOCS / "parallelism.md"]
LARGE = Machine(processor="any", cores=64, memory_bytes=2**40)
COMMANDS = sorted(
    {
        " ".join(command.split())
        for page in PAGES
        for command in re.findall(r"`(assay (?:compare|train|estimate|plan) [^`]*)`", page.read_text(encoding="utf-8"))
    }
)


@pytest.fixture(scope="module")
def generate() -> Any:
    return program("generate")


def test_generated_pages_are_current(generate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_EXTENSIONS", raising=False)
    stale = [name for name, text in generate.pages().items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert not stale, "run `make docs`"


def test_figures_are_well_formed_and_each_is_shown_once(generate: Any) -> None:
    page = (DOCS / "parallelism.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^]]{20,}\]\(figures/(\w+)\.svg\)", page)
    assert sorted(shown) == sorted(generate.FIGURES) == sorted(path.stem for path in (DOCS / "figures").glob("*.svg"))
    for name in shown:
        drawn = ElementTree.fromstring((DOCS / "figures" / f"{name}.svg").read_text(encoding="utf-8"))
        assert drawn.find("{http://www.w3.org/2000/svg}title") is not None


def test_figures_keep_to_their_frame(generate: Any) -> None:
    for name, draw in generate.FIGURES.items():
        root = ElementTree.fromstring(draw().svg())
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for box in root.iter("{http://www.w3.org/2000/svg}rect"):
            if box.attrib["width"] != "100%":
                right = float(box.attrib["x"]) + float(box.attrib["width"])
                bottom = float(box.attrib["y"]) + float(box.attrib["height"])
                assert right <= width, name
                assert bottom <= height, name


def test_the_figure_of_zero_is_the_paper_s() -> None:
    """arXiv:1910.02054, figure 1: 120, 31.4, 16.6 and 1.9 GB."""
    text = (DOCS / "figures" / "zero.svg").read_text(encoding="utf-8")
    assert re.findall(r">([\d.]+)</text>", text) == ["120", "31.4", "16.6", "1.88"]


@pytest.fixture(scope="module")
def questions(generate: Any) -> Any:
    return sys.modules["questions"]


FAST = ("nothing", "24 GB"), ("everything, Adam's state in 8 bits", "40 GB")


@pytest.mark.parametrize(
    ("name", "index"),
    [
        pytest.param(name, index, marks=[] if (name, title) in FAST else [pytest.mark.slow], id=f"{name}, {title}")
        for name in ("nothing", "everything, Adam's state in 8 bits", "everything, Adafactor")
        for index, title in enumerate(("24 GB", "40 GB", "80 GB", "141 GB"))
    ],
)
def test_the_largest_models_fit_and_the_next_do_not(questions: Any, name: str, index: int) -> None:
    """The page extrapolates shallow models; the ledger of the whole model agrees."""
    techniques, budget = questions.STACKS[name], DEVICES[questions.BUDGETS[index]].memory_bytes
    layers = questions.largest(techniques, budget)
    assert questions.peak_bytes(questions.shape(layers, techniques)) <= budget
    assert questions.peak_bytes(questions.shape(layers + 1, techniques)) > budget


def test_a_law_s_questions_have_its_answers(questions: Any) -> None:
    for size in (1e8, 1e10):
        tokens = questions.optimal_tokens(BESIROGLU, size)
        assert BESIROGLU.optimum(6 * size * tokens) == pytest.approx((size, tokens))
    for flops in (1e19, 1e23):
        size, tokens = questions.converged(BESIROGLU, flops)
        best = BESIROGLU.loss(*BESIROGLU.optimum(flops))
        assert 6 * size * tokens == pytest.approx(flops)
        assert BESIROGLU.loss(size, tokens) / BESIROGLU.loss(size, 1e300) == pytest.approx(1.01)
        assert BESIROGLU.loss(size, tokens) > best
        assert questions.flops_for(BESIROGLU, float(best)) == pytest.approx(flops)


def test_a_line_through_doublings_has_their_time(questions: Any) -> None:
    grown = [
        DEVICES["h100"].model_copy(update={"year": 2000 + 3 * index, "memory_bytes": 2**index}) for index in range(4)
    ]
    assert questions.doubling_years(grown, "memory") == pytest.approx((3, 0), abs=1e-9)


def test_a_hundred_trillion_parameters_need_ten_petabytes_of_text_at_most() -> None:
    text = (DOCS / "estimating.md").read_text(encoding="utf-8")
    assert "| tokens, twenty a parameter | 2e15, 8 to 10 PB of text |" in text
    assert all(f"| `{name}` | {device.year} |" in text for name, device in DEVICES.items())


@pytest.mark.parametrize("word", ["treatment", "stack"])
def test_the_readme_says_what_a_word_means_where_it_first_uses_it(word: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(rf".{word}.", text, flags=re.IGNORECASE)
    assert first is not None
    assert first[0] == f"*{word}*"


def test_files_that_the_architecture_names_exist() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"## Five questions\n(.*)", text, flags=re.DOTALL)
    named = re.findall(r"`([\w/]+(?:\.py|/))`", section)
    assert len(named) > 25
    assert [one for one in named if not (ROOT / "src" / "assay" / one).exists()] == []


def test_the_readme_can_be_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 6


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_possible(command: str) -> None:
    verb, *words = shlex.split(command)[1:]
    flags = {"--oversubscribe", "--json"}
    named: dict[str, list[str]] = {}
    plain: list[str] = []
    rest = iter(word for word in words if word not in flags)
    for word in rest:
        if word.startswith("--"):
            named.setdefault(word, []).append(next(rest))
        else:
            plain.append(word)
    if verb == "plan":
        where = {"nodes": int(named["--nodes"][0]), "gpus_per_node": int(named["--gpus-per-node"][0])}
        plan(*plain, optimizations=named["--with"], gpu=named["--gpu"][0], **where)  # type: ignore[arg-type]
        return
    ranks = [f"ranks={count}" for count in named.get("--nproc", [])]
    stacks = [[one] for one in named["--with"]] if verb == "compare" else [named.get("--with", [])]
    for stack in stacks:
        run = configure(plain[0], [*plain[1:], *ranks], stack)
        check(run, LARGE)
        assert mesh_of(run).size in (1, run.ranks)


WALK = program("walk")
AT_ONCE = ("assay study plan ", "assay plan ", "assay inference ", "assay cost ", "assay schema")
"""Beginnings of commands that train nothing and time nothing."""


def answers(page: Path) -> Iterator[Any]:
    """Yield the blocks of a page whose commands answer at once, and of which the page says what is printed."""
    for block in WALK.blocks(page.read_text(encoding="utf-8")):
        if block.says and block.commands and all(one.startswith(AT_ONCE) for one in block.commands):
            yield block


@pytest.mark.parametrize("page", [one for one in WALK.PAGES if any(answers(one))], ids=lambda page: page.stem)
def test_an_answer_says_what_its_page_promises(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "160")
    for block in WALK.blocks(page.read_text(encoding="utf-8")):
        if "file" in block.notes:
            Path(block.notes["file"]).write_text(block.text, encoding="utf-8")
    for block in answers(page):
        said = [CliRunner().invoke(app, shlex.split(one)[1:]) for one in block.commands]
        assert [one.exit_code for one in said] == [block.exits] * len(said)
        output = "".join(one.output for one in said)
        assert [phrase for phrase in block.says if phrase not in output] == []


def broken(page: str, folder: Path) -> list[str]:
    """Return the relative links of a page in a folder that lead to no file, or to no heading of it."""
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    return [one for one in links if not re.match(r"[a-z]+:", one) and not leads(one, page, folder)]


def leads(link: str, page: str, folder: Path) -> bool:
    path, _, anchor = link.partition("#")
    if path and not (folder / path).exists():
        return False
    return not anchor or anchor in anchors((folder / path).read_text(encoding="utf-8") if path else page)


def anchors(page: str) -> set[str]:
    """Return the names of a page's headings in links."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_pages_beside_the_site_lead_somewhere(name: str) -> None:
    assert broken((ROOT / name).read_text(encoding="utf-8"), ROOT) == []


def test_a_link_to_nothing_is_found() -> None:
    wrong = ["docs/nothing.md", "docs/glossary.md#nothing", "#nothing"]
    good = "[here](#a-title) [a\nrun](docs/glossary.md#a-run) [folder](docs/decisions) [far](https://x.org/y)"
    assert broken(f"# A title\n{good} " + " ".join(f"[word]({one})" for one in wrong), ROOT) == wrong


def test_the_citation_has_the_version_and_licence_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])


def test_the_container_is_built_from_files_that_exist_and_are_let_through() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = {name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]}
    let_through = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {"pyproject.toml", "src"} <= copied
    assert {name for name in copied if (ROOT / name).exists()} == copied
    assert {line[1:] for line in let_through if line.startswith("!")} == copied
