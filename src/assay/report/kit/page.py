"""One self-contained page: the table, the figures, the proofs, and how each number was made. It needs no network.

The template engine escapes all text from outside (names, reasons, a processor's own name). Only the figures, which are
made here, are inserted as they are.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from assay.analysis.comparison import Comparison
from assay.config.home import Home
from assay.errors import UsageError, short_text
from assay.files import write_file
from assay.report.kit.drawing import Panel, alone, svg
from assay.report.kit.view import View, view

if TYPE_CHECKING:
    from jinja2 import Environment


_FIRST = b"<!doctype html>"
"""Start of every page."""


def write_page(result: Comparison | View, home: Home, path: Path | None = None) -> Path:
    """Write the page to `path`, or to `index.html` in the folder of the comparison's record; whole or not at all.

    Beside it is the page's data (`data.write_data`); the names of its files begin with that of `path`, because other
    files may be there. Returns the page's path. Raises `UsageError` as `check_page`, and `StorageError`.
    """
    from assay.report.comparison.page import write_data

    answer = view(result)
    if path is None:
        path, prefix = home.reports / answer.comparison.record.id / "index.html", ""
    else:
        check_page(path)
        prefix = f"{path.stem}-"
    write_data(answer, path.parent, prefix)
    write_file(path, render(answer).encode())
    return path.absolute()


def check_page(path: Path, begins: bytes = _FIRST) -> None:
    """Raise `UsageError` if a page cannot be written to a path, or would replace a file that is no page.

    A page `begins` with these bytes, in any case of letters; a report of another form has others.
    """
    named = f"--page {short_text(str(path))}"
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{named} is not a file; name a file that ends in .html")
        existed = path.exists()
        with path.open("ab+") as file:
            file.seek(0)
            first = file.read(len(begins))
        if not existed:
            path.unlink()
        elif first and first.lower() != begins.lower():
            raise UsageError(f"{named} is a file that is no page, and would be replaced; name another file")
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{named} cannot be written ({reason}); name a file in a folder that can be written") from None


def render(result: Comparison | View) -> str:
    """Return the page as text; a study of scaling has a page of its own."""
    name, content = view(result).page()
    return render_template(name, **content)


def render_template(name: str, **content: Any) -> str:
    """Return a page as text: the template of this name, with its content escaped."""
    return _templates().get_template(name).render(content)


def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("assay.report.kit"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["breakable"] = breakable
    templates.filters["no_break"] = no_break
    templates.globals["script"] = Markup(page_script())
    return templates


def page_script() -> str:
    """Return the one script of a page: contents that follow, and figures as files. A page is whole without it."""
    return (Path(__file__).parent / "templates" / "page.js").read_text().strip()


def breakable(name: str) -> Markup:
    """Return a name that may be broken after each ``+``, ``:`` and ``=``."""
    text = str(escape(name))
    for joint in "+:=":
        text = text.replace(joint, f"{joint}<wbr>")
    return Markup(text)


def no_break(text: str) -> str:
    """Return a sentence whose numbers stay on the line of their sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" ×", "\N{NO-BREAK SPACE}×")


def inline(heading: str, panels: Iterable[Panel]) -> list[dict[str, Markup]]:
    """Return panels with their titles and SVG elements; readers who cannot see them are told heading and title."""
    return [
        {"title": breakable(one.title), "svg": Markup(svg(alone(one), f"{heading}: {one.title}"))} for one in panels
    ]
