"""Copies of records for trackers."""
