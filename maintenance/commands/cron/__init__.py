"""The verbs of cron; the work is in `cron_store`."""
