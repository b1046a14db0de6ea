"""Slots: what is pending, what becomes of it by the job's policies, and the record of each."""
