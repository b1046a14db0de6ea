"""Checks of a store that change nothing."""
