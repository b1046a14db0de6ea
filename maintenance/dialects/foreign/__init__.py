"""What the tables of a `state.db` written by hermes-agent mean, release by release, told by the columns it has.

Invariant: every statement is built from the columns that the file shows; a column or table that we do not know is kept,
copied on export and never written. Not for: adopting a file, or changing its schema.
"""
