"""A replica of a store made by Litestream: its configuration, its process, and the proof that it can be restored."""
