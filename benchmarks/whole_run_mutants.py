"""Count the wrong variants of whole runs that `assay train` or `assay compare` catches.

    python benchmarks/whole_run_mutants.py [--kind KIND] [--only NAME] [--with train|compare] [--jobs 1]
                                           [--out docs/measured/whole_run_mutants.md] [--again] [--list]

Each mutant of `benchmarks/mutants` is planted as an extension, and trained by the real command line in processes of its
own. It is caught if the run ends with exit code 3, or if its answer says that it is not proven. In a comparison, a
caution of its row that its control has not counts as well. Neighbours are only run in a comparison.

A mutant must change something, and its control must pass: the same run without the fault. So each line also says in how
many steps the fault left its mark, and which figures differ from the control's. Results are kept in a JSON file beside
the page, as soon as they are there. A second call runs what is missing; `--again` runs everything.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from assay.files import write_file
from mutants.judging import Results, judged, line
from mutants.mutant import Mutant
from mutants.named import KINDS
from mutants.page import listing, page
from mutants.running import Place


def chosen(kind: str | None, only: str | None, verb: str) -> list[tuple[str, Mutant]]:
    """Mutants that were asked for, each with its kind."""
    found = [(one, mutant) for one, mutants in KINDS.items() if kind in (None, one) for mutant in mutants]
    return [
        (one, mutant)
        for one, mutant in found
        if only in (None, mutant.name) and (verb == "compare" or one != "neighbours")
    ]


def run(asked: Sequence[tuple[str, Mutant]], verb: str, results: Results, jobs: int) -> None:
    """Run mutants and their controls, and print a line for each as it ends."""
    with tempfile.TemporaryDirectory(prefix="assay-mutants-") as folder:
        place = Place(Path(folder), verb)

        def work(one: tuple[str, Mutant]) -> str:
            return line(judged(*one, place, results))

        with ThreadPoolExecutor(jobs) as pool:
            for text in pool.map(work, asked):
                print(text, flush=True)


def main() -> None:
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--only", help="the name of one mutant")
    parser.add_argument("--with", dest="verb", choices=("train", "compare"), default="train")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--again", action="store_true", help="run also what has a result")
    parser.add_argument("--list", action="store_true", help="print the mutants and run none")
    asked = parser.parse_args()
    if asked.list:
        print(listing(KINDS))
        return
    results = Results(asked.out.with_suffix(".json") if asked.out else None)
    every = chosen(asked.kind, asked.only, asked.verb)
    missing = [one for one in every if asked.again or not results.has(asked.verb, one[1].name)]
    run(missing, asked.verb, results, asked.jobs)
    text = page(results, KINDS)
    print(text)
    if asked.out:
        write_file(asked.out, text.encode())


if __name__ == "__main__":
    main()
