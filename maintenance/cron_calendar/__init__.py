"""The calendar of cron jobs: days of outcomes behind, days of slots ahead, as data, as text and as a page."""
