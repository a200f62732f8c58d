"""Sections of a study's answer: the sentences, the choice of a row, effects of factors, and what was stated before."""
