"""Ticking many homes from one process, in threads that are sized by each home and gone when it is idle."""

from __future__ import annotations

from cron_store.ticker.deciding import Code
from cron_store.ticker.draining import Drained
from cron_store.ticker.finding import installation
from cron_store.ticker.pools import Wedged
from cron_store.ticker.running import Done, Running, Work
from cron_store.ticker.status import HomeStatus, Light, Survivor, home_status, survivors
from cron_store.ticker.ticker import CronTicker
from cron_store.ticker.ticking import Problem, Ticked

__all__ = [
    "Code", "CronTicker", "Done", "Drained", "HomeStatus", "Light", "Problem", "Running", "Survivor", "Ticked",
    "Wedged", "Work", "home_status", "installation", "survivors",
]
