"""What the tables of a native store mean to the maintenance commands.

Invariant: the schema is ours, so statements name its columns; columns of later steps are asked for before they are
read. Changes go through the functions of `hermes_state.conversation` that the library itself uses. Not for: foreign
files.
"""
