"""Turning a file of hermes-agent into a native store, without losing a byte of what it says."""
