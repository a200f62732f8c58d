# What a reader of the README has: a text.
python -m pydoc builtins > input.txt
