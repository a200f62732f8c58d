"""Memory of a step: tensors, saved tensors, heap and process."""
