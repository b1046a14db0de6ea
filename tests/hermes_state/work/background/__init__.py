"""Background processes, delegations, and who is told of their ends."""
