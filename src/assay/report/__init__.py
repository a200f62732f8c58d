"""Reports for a reader: the table, the figures and the page. `view` is what is shown of a value, by its type."""

from assay.report.kit.view import View, view

__all__ = ["View", "view"]
