"""How results reach people and programs: tables, JSON documents, progress, problems, and safe text.

Invariant: stdout carries the result and nothing else; progress, plans, questions and problems go to stderr. Nothing
that comes out of a store reaches a terminal but through `text.safe_text`.
"""
