"""The last lines of a command: the result, what it is compared with, and what to run next."""
