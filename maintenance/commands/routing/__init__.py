"""The verbs of routing; the work is in `hermes_state.routing`."""
