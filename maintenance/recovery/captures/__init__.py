"""Captures of lost WAL generations: verified, ordered, compared with the store, merged back into it."""
