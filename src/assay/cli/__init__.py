"""The command line: each verb is one file that parses, calls one function and prints; heavy imports are inside it."""
