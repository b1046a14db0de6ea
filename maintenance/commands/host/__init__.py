"""The verbs of the host; the work is in `hermes_state.host`."""
