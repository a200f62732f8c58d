"""Wrong variants of whole runs, by kind, and how they are planted."""
