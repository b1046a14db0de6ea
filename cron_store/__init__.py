"""Scheduled jobs of a home: every due slot accounted for exactly once."""
