"""Draw the pictures of the dashboard in docs/pictures, each as a browser shows it.

    python docs/pictures.py                     write them anew
    python docs/pictures.py --into DIR          write each view narrow and wide, light and dark, to be looked at

A home of its own gets the record of a study that was run and a few short runs, and the dashboard serves it. It needs
the extras test and browser, and a Chromium. The figures of the runs are those of this machine, which should be quiet.
"""

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from support.browsers import FLAGS, assay, chromium, dashboard  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = ROOT / "docs" / "pictures"
STUDY = ROOT / "docs" / "studies" / "wikitext-recipe-micro-batching" / "study.tar.xz"
STACKS = ("", "lion", "sdpa_attention+bf16_mixed")
"""Stacks of the short runs; the last one has a picture of its own."""
SHOWN_HOME = "/home/you/.assay"
VIEWS = {"home": "/", "runs": "/runs", "run": "/runs/{run}", "study": "/studies/{study}", "what-if": "/what-if",
         "scaling": "/scaling"}  # fmt: skip
HEIGHTS = {"home": 620, "runs": 640, "run": 1180, "study": 1000, "what-if": 1240, "scaling": 1300}
"""Pixels of each picture; its width is `WIDE`."""
NARROW, WIDE = 400, 1200
_RENAME = """([from, to]) => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) walk.currentNode.data = walk.currentNode.data.replaceAll(from, to);
}"""
"""Shows another path in place of the home's."""
_SETTLED = 2500
"""Milliseconds after which figures are drawn."""


def filled(home: Path) -> None:
    """Give a home its run and its study."""
    runs = (("train", "demo", "training.steps=200", *(("--with", one) if one else ())) for one in STACKS)
    for words in (("runs", "import", str(STUDY)), *runs):
        started = assay(home, *words)
        said, _ = started.communicate()
        if started.returncode:
            raise subprocess.CalledProcessError(started.returncode, words, said)


def drawn(browser: "Browser", home: Path, address: str, size: tuple[int, int], *, dark: bool, whole: bool) -> bytes:
    """Return the picture of a page; `whole` has all of its height."""
    wide, high = size
    page = browser.new_page(viewport={"width": wide, "height": high}, color_scheme="dark" if dark else "light")
    page.goto(address)
    page.wait_for_timeout(_SETTLED)
    page.evaluate(_RENAME, [str(home), SHOWN_HOME])
    picture = page.screenshot(full_page=whole)
    page.close()
    return picture


def addresses(home: Path, base: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the address of each view."""
    run, study = (max(one.name for one in (home / room).iterdir()) for room in ("runs", "reports"))
    for name, path in VIEWS.items():
        yield name, base + path.format(run=run, study=study)


def small(picture: bytes) -> bytes:
    """Return a picture with at most 64 colours, which is less than half as large."""
    from PIL import Image

    made = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(64).save(made, "PNG", optimize=True)
    return made.getvalue()


def main() -> None:
    """Write the pictures."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, metavar="DIR")
    into = parser.parse_args().into
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        home = Path(folder)
        filled(home)
        browser = play.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        with dashboard(home) as base:
            for name, address in addresses(home, base):
                if into is None:
                    picture = drawn(browser, home, address, (WIDE, HEIGHTS[name]), dark=False, whole=False)
                    (PICTURES / f"dashboard-{name}.png").write_bytes(small(picture))
                    continue
                into.mkdir(parents=True, exist_ok=True)
                for wide, dark in ((NARROW, False), (NARROW, True), (WIDE, False), (WIDE, True)):
                    picture = drawn(browser, home, address, (wide, 800), dark=dark, whole=True)
                    (into / f"{name}-{wide}-{'dark' if dark else 'light'}.png").write_bytes(small(picture))
        browser.close()


if __name__ == "__main__":
    main()
