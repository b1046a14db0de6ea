"""The loop of a side: one JSON object a line in, one a line out.

Invariant: standard output carries answers only; whatever a library prints goes to standard error. Not for: this
project's own process (see `channel.py`). A socket was rejected: a pipe ends with the process at either side.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer each request until the input ends; what fails is an answer too."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # the asking process decides what a failure of a contender means
            reply = {"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]}
        out.write(json.dumps(reply) + "\n")
        out.flush()
