"""Laws of loss, one file for each source. `base` is their interface, and finds them."""

from assay.scaling.laws.base import Constant, Form, Law, form_named, forms
from assay.scaling.laws.hoffmann import HOFFMANN

__all__ = ["HOFFMANN", "Constant", "Form", "Law", "form_named", "forms"]
