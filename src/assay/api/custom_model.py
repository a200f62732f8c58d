"""The model of a user's own that `assay compare module:function` trains. Importing it imports torch."""

from assay.model.own_model import Loss, OwnModel

__all__ = ["Loss", "OwnModel"]
