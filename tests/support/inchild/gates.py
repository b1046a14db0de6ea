"""The child's side of the gates: files in the folder named by HERMES_STATE_GATES.

    import gates
    gates.reach("ready", "any text")    # the parent's child.wait_for("ready") returns the text
    gates.wait("go")                    # until the parent calls child.release("go")
    gates.value("go")                   # the text that the parent released with

Standard library only: it also runs under the interpreters of other environments.
"""

import os
import time

_FOLDER = os.environ["HERMES_STATE_GATES"]


def reach(name, text=""):
    """Say that this point was reached. The file appears whole."""
    staged = os.path.join(_FOLDER, f".{name}.{os.getpid()}")
    with open(staged, "w", encoding="utf-8") as out:
        out.write(str(text))
    os.replace(staged, os.path.join(_FOLDER, f"{name}.reached"))


def wait(name, seconds=60.0):
    """Block until the parent releases `name`, and give the text that it released with."""
    path = os.path.join(_FOLDER, f"{name}.released")
    deadline = time.monotonic() + seconds
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise SystemExit(f"gate {name} was not released within {seconds} s")
        time.sleep(0.002)
    with open(path, encoding="utf-8") as source:
        return source.read()


def released(name):
    """Whether the parent released `name` already; for loops that work until told to stop."""
    return os.path.exists(os.path.join(_FOLDER, f"{name}.released"))
