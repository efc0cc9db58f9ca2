"""Serve the loaders of a program, and train it with several learning rates side by side.

    python start.py MODULE RATES STREAM=FUNCTION...

It does what the first two lines of a notebook do. The long stall timeout is for the tests: a wait that another trial's
end of an epoch should have ended does not end by itself.
"""

import importlib
import json
import sys

import tsnb

if __name__ == "__main__":
    module, rates, *streams = sys.argv[1:]
    program = importlib.import_module(module)
    for stream in streams:
        name, maker = stream.split("=")
        tsnb.serve(getattr(program, maker)(), name=name, stall_timeout_s=900)
    sweep = tsnb.sweep(program.train, name=module, grid={"lr": json.loads(rates)}).wait()
    for trial in sweep.values():
        print(json.dumps({"lr": trial.params["lr"], **trial.result()}))
