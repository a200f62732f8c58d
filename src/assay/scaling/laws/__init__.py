"""Laws of loss, one file each. `base` is their interface, `registry` finds them."""

from assay.scaling.laws.base import Constant, Form, Law
from assay.scaling.laws.hoffmann import HOFFMANN
from assay.scaling.laws.registry import form_named, forms

__all__ = ["HOFFMANN", "Constant", "Form", "Law", "form_named", "forms"]
