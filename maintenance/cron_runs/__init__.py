"""Runs of cron jobs by a command that a person names, for machines whose own cron starts the tick."""
