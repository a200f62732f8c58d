"""Four additions to the site.

Folders in the navigation stand for their pages, two pages come from outside docs/, and each study that was run has a
link to its own page, which `make docs` writes beside it. JSON schemas are files of the site.
"""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from assay.api.schema import SCHEMAS
from assay.units import json_text

HERE = Path(__file__).parent
OUTSIDE = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
"""Name in the site, and name at the root of the repository."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each folder in the navigation by its pages, in the order of their names."""
    config.nav = _spread(config.nav)
    return config


def _spread(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _spread(child) for title, child in entry.items()}
    if isinstance(entry, list):
        return [one for child in entry for one in (_pages(child) if _is_folder(child) else [_spread(child)])]
    return entry


def _is_folder(entry: Any) -> bool:
    return isinstance(entry, str) and entry.endswith("/")


def _pages(folder: str) -> list[str]:
    """Return the pages of a folder, and those of its subfolders: the one README that each has."""
    found = [*sorted((HERE / folder).glob("*.md")), *sorted((HERE / folder).glob("*/README.md"))]
    return [path.relative_to(HERE).as_posix() for path in found]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from the root of the repository, and each JSON schema as `schemas/NAME.json`."""
    for name, source in OUTSIDE.items():
        text = (HERE.parent / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    for name, schema in SCHEMAS.items():
        files.append(File.generated(config, f"schemas/{name}.json", content=json_text(schema.plain(), indent=1)))
    return files


def on_page_markdown(markdown: str, page: Page, **given: Any) -> str:
    """Let links to these pages stay inside the site, and link a study that was run to its page."""
    for name, source in OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({name}")
    record = HERE / Path(page.file.src_uri).parent / "study.tar.xz"
    # A link of HTML: the page is written after the site, whose links are checked.
    return f'{markdown}\n<a href="page.html">The page of this study</a>\n' if record.exists() else markdown
