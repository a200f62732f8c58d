# A text, as a reader has one.
python -m pydoc builtins > input.txt
