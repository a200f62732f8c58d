"""One run: an isolated process, its folder, its record in the store."""
