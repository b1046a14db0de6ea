"""Runs: in flight while they are open, history once they have ended."""
