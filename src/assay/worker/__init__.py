"""The measured child of a run: build, train, measure, prove. Imports torch."""
