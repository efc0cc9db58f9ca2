"""A planned sweep under a real memory limit: a trial that the system would kill runs spilled, the others do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.placing import group
from tests.spilling.test_spilled import DISK
from tests.system.scripts import Script, scripts

MIB = 1 << 20
LIMIT = 640 * MIB

TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset

SOURCE = '''
def train(layers, where, limit=None, epochs=1):
    import torch
    import tsnb
    from pathlib import Path
    Path("/proc/self/oom_score_adj").write_text("900")  # the process that counts is not to be killed in its place
    torch.manual_seed(1)
    net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(layers)])
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    if limit is not None:
        tsnb.offload(net, optimizer, limit=limit, directory=where)
    for _ in range(epochs):
        for (batch,) in tsnb.attach():
            loss = net(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()
'''
made = {"__name__": "__main__"}
exec(SOURCE, made)
train = made["train"]
loader = DataLoader(TensorDataset(torch.randn(24, 1024)), 2)
"""


@pytest.fixture
def limited() -> Iterator[Path]:
    """Give a control group with a memory limit, inside of ours."""
    with group(LIMIT) as made:
        if made is None:
            pytest.skip("no control group can be made here")
        yield made


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(900)
def test_a_trial_that_would_be_killed_runs_spilled(limited: Path) -> None:
    """It is killed as it is; planned, it is given the limit with which it fits, and the one that fits is given none."""
    code = f"""
open("{limited}/cgroup.procs", "w").write(str(os.getpid()))
{TRAIN}
from tsnb.machine.memory import free_memory
with tsnb.serve(loader, name="limited"):
    tsnb.run(train, layers=1, where="", name="warm").wait()
    free = free_memory().size
    large = int(1.4 * free / (16 << 20))  # Adam takes 16 bytes a parameter
    say("free", free >> 20, "MiB;", large, "layers,", large * 16, "MiB")
    grid = {{"layers": [2, large]}}
    plain = tsnb.sweep(train, grid=grid, where="", at_once=1, name="plain", seed=1)
    try: plain.wait()
    except Exception as error: print(error, file=sys.stderr)
    say("plain", *(trial.state for trial in plain.values()))
    choose = {{"limit": [None, "96MiB"]}}
    sweep = tsnb.sweep(  # one at a time: else both may be spilled, to run at once
        train, grid=grid, where="{DISK}", name="s", seed=1, plan=True, choose=choose, at_once=1
    )
    sweep.wait()
    say("planned", *(sweep[name].state for name in sweep.params))
    say("limits", *(sweep[name].params["limit"] for name in sweep.params))
    say("same", sweep["s-layers2"].result() == plain["plain-layers2"].result())
say("end")
"""
    with scripts() as running:
        script = Script(code)
        running.append(script)
        script.expect("free", 120)
        assert script.expect("plain", 300) == "done crashed"
        assert script.expect("planned", 500) == "done done"
        assert script.expect("limits", 10) == "None 96MiB"
        assert script.expect("same", 10) == "True"
        script.expect("end", 60)
        script.end()
        said = "\n".join(script.lines)
        assert "is not run with limit=None: its process died while it was measured" in said
