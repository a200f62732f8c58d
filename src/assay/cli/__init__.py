"""The command line: each verb is one file that parses, calls one function and prints. It imports the rest when it
runs."""
