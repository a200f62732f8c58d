"""Pages from templates: all text is escaped, and data for scripts is JSON that no browser reads as markup.

Templates are in `templates/` and extend `layout.html`; `blocks.html` of the written pages shows facts and tables. No
page has an inline script or an inline style.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from assay.errors import legible
from assay.units import json_text

if TYPE_CHECKING:
    from jinja2 import Environment

VIEWS = (("/", "Home"), ("/runs", "Runs"), ("/studies", "Studies"), ("/what-if", "What if"), ("/scaling", "Scaling"))
"""Address and title of each view, in the order of the navigation."""

LONGEST = 20_000
"""Characters of one text on a page; a longer one is cut."""

_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that could end a script element or a line, and their escapes in JSON."""


def page(request: Request, template: str, *, status_code: int = 200, **content: Any) -> HTMLResponse:
    """Return a page: the template of this name, with its content escaped."""
    here = request.scope["path"]
    current = max((address for address, _ in VIEWS if _below(here, address)), key=len, default="")
    return HTMLResponse(render_page(template, views=VIEWS, current=current, **content), status_code)


def render_page(template: str, **content: Any) -> str:
    """Return the text of a template, with its content escaped."""
    return _templates().get_template(template).render(content)


def _below(path: str, view: str) -> bool:
    """True if a path belongs to a view."""
    return path == view or (view != "/" and path.startswith(f"{view}/"))


@cache
def _templates() -> "Environment":
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    from assay.report.kit.view import breakable

    templates = Environment(
        loader=ChoiceLoader([PackageLoader("assay.dashboard"), PackageLoader("assay.report.kit")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
    )
    templates.filters |= {"script_json": script_json, "breakable": breakable}
    return templates


def _finalized(value: Any) -> Any:
    return legible(value, LONGEST) if isinstance(value, str) and not isinstance(value, Markup) else value


def script_json(value: object) -> Markup:
    """Return a value as JSON for `<script type="application/json">`; a number that is not finite becomes null."""
    text = json_text(value, ensure_ascii=False, separators=(",", ":"))
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return Markup(text)
