"""The value check: the first steps of a program against the baseline program and a slow replay of its updates."""
