"""The verbs of the outbox; the work is in `hermes_state.outbox`."""
