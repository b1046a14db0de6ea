"""Python imports this at start when its folder is on PYTHONPATH: it puts the audit hook into children of the tests."""

import os

report = os.environ.get("HERMES_STATE_AUDIT_REPORT")
if report:
    import live_store_audit

    live_store_audit.install(report=report)
