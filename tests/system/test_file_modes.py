"""Everything that a whole session writes is this user's alone, whatever the umask."""

from __future__ import annotations

import json
import stat
import tempfile
from pathlib import Path

import pytest

from tests.system.conftest import Run

pytestmark = pytest.mark.system

SESSION = """
import json, pathlib
from tsnb.experiments import run_cell

place = pathlib.Path(sys.argv[1])
os.umask(int(sys.argv[2], 8))
os.environ.update(TSNB_RUNTIME_DIR=sys.argv[3], TSNB_PROJECT_DIR=str(place / "project"))
os.chdir(place / "page")

def look(when):
    for top, called in ((str(place), ""), (sys.argv[3], "runtime/")):
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                try: mode = os.lstat(path).st_mode
                except FileNotFoundError: continue
                if name not in ("page", "project") and "/own-" not in path:
                    say(when, json.dumps([called + os.path.relpath(path, top), mode]))
    say(when, "all")

def cell(name, wait):
    return f'''
import os, pathlib, time
pathlib.Path("own-{name}").mkdir(exist_ok=True)
(pathlib.Path("own-{name}") / "net.pt").write_text("net")
tsnb.log_artifact("own-{name}", "nets/last")
tsnb.log_artifact("own-{name}/net.pt", "net.pt")
for x, y in tsnb.attach("{name}"): tsnb.log(loss=1.0)
print("trained", flush=True)
while {wait} and not os.path.exists("own-go"): time.sleep(0.02)
'''

with tsnb.serve(DataLoader(Numbers(64), batch_size=8), name="s", seed=1) as producer:
    recorder = tsnb.streams.record("s", "run.jsonl")
    slow = run_cell("slow", cell("slow", True), {"given": torch.zeros(8)}, log_to=["tensorboard"])
    far = run_cell("far", cell("far", True), {}, detach=True)
    while not all("trained" in trial.logs() for trial in (slow, far)): time.sleep(0.02)
    look("during")
    tsnb.report("s").save("report.html")
    tsnb.report("s").save("report.svg")
    tsnb.report("s").save("report.json")
    open("own-go", "w").close()
    slow.wait(120), far.wait(120)
    recorder.stop()
tsnb.records.export("runs.csv")
tsnb.records.export("numbers.parquet", what="metrics")
look("after")
"""

SEEN = {
    "runtime/producers/s.json": "during",
    "project/.tsnb/records.sqlite": "during",
    "project/.tsnb/records.sqlite-wal": "during",
    "project/.tsnb/records.sqlite-shm": "during",
    "project/.tsnb/logs/far-1.log": "during",
    "project/.tsnb/artifacts/slow-1/nets/last/net.pt": "after",
    "project/.tsnb/.gitignore": "after",
    "page/run.jsonl": "after",
    "page/report.html": "after",
    "page/report.json": "after",
    "page/runs.csv": "after",
    "page/numbers.parquet": "after",
}
"""What has to have been looked at, so that the walk is known to have seen a session."""


@pytest.mark.slow
@pytest.mark.parametrize("umask", ["000", "022"])
def test_all_files_of_a_session_are_private_under_any_umask(run: Run, tmp_path: Path, umask: str) -> None:
    """Registry, connection files, records with their log, logs, artifacts, recordings, reports, exports."""
    for name in ("page", "project"):
        (tmp_path / name).mkdir()
    found: dict[str, dict[str, int]] = {"during": {}, "after": {}}
    with tempfile.TemporaryDirectory(prefix="tsnb-", ignore_cleanup_errors=True) as runtime:  # short: sockets
        script = run(SESSION, str(tmp_path), umask, runtime)
        for when, modes in found.items():
            while (line := script.expect(when).strip()) != "all":
                path, mode = json.loads(line)
                modes[path] = mode
        script.process.wait(120)
    missing = {path for path, when in SEEN.items() if path not in found[when]}
    assert not missing, sorted(found["during"] | found["after"])
    assert any(path.endswith(".json") and "/hub-" in path for path in found["during"]), "a connection file"
    # sockets are made by ZeroMQ, in directories that nobody else can enter; a tracker's files are its own
    loose = {
        f"{path} {stat.filemode(mode)}"
        for modes in found.values()
        for path, mode in modes.items()
        if mode & 0o077 and not stat.S_ISSOCK(mode) and "events.out.tfevents" not in Path(path).name
    }
    assert not loose
