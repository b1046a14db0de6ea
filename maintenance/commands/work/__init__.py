"""The verbs of background work, lanes, replies, logins and credentials; the work is in `hermes_state.work`."""
