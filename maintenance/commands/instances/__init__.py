"""The verbs of gateway instances; the work is in `hermes_state.instances`."""
