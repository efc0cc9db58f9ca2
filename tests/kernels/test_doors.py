"""What another user of the machine may try on background kernels: files in a shared directory, sockets, leftovers."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import forking
from tests.second_user import does, reachable, two_users
from tests.system.scripts import ROOT

pytestmark = pytest.mark.system

ALL_MODULES = {
    name
    for name in set(sys.stdlib_module_names) | set(metadata.packages_distributions())
    if name in sys.modules or PathFinder.find_spec(name) is not None
}
"""Whatever a Python of ours could import here."""

OURS = {"tsnb", "tests"}
"""Found through PYTHONPATH here, before any directory of the user's."""


PLANT = """
    where = sys.argv[1]
    planted = f"with open({where + '/witness'!r}, 'a') as f: f.write(__name__ + ' ')\\nraise ImportError('planted')"
    for name in sys.argv[2:]:
        with open(f"{where}/{name}.py", "w") as file: file.write(planted)
"""


@pytest.fixture
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory as /tmp is one, in which another user has put a module of every name there is."""
    where = reachable(tmp_path_factory.mktemp("shared"))
    where.chmod(0o1777)
    does(PLANT, where, *(ALL_MODULES - OURS))
    return where


def planted_code_that_ran(where: Path) -> list[str]:
    witness = where / "witness"
    return witness.read_text().split() if witness.exists() else []


IN_A_SHARED_DIRECTORY = """
import sys
import tsnb

def train():
    from multiprocessing import get_context
    found = []
    for method in ("spawn", "forkserver"):
        with get_context(method).Pool(1) as pool:
            found += pool.map(len, ["ab"])
    return found, [path for path in sys.path if path in ("", os.getcwd())]

import os
other = {"LC_TSNB_TEST": "1"}  # read once, when Python starts: a start of its own
trials = [tsnb.run(train, name=name, env=env) for name, env in (("forked", {}), ("spawned", other))]
for trial in trials:
    print(trial.name, *trial.result(120), flush=True)
tsnb.trials.clear()
"""


@pytest.mark.slow
@two_users
def test_kernels_and_their_workers_import_nothing_from_the_working_directory(
    shared_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any way to start one; an innocent `random.py` beside the notebook breaks nothing either."""
    monkeypatch.chdir(shared_directory)
    script = forking.start(IN_A_SHARED_DIRECTORY, stdin=False)
    assert script.stdout is not None
    said = script.stdout.read()
    assert script.wait(120) == 0, said
    script.stdout.close()
    assert not planted_code_that_ran(shared_directory)
    assert said.splitlines()[-2:] == ["forked [2, 2] []", "spawned [2, 2] []"]


SCRIPT = """
import torch
from torch.utils.data import DataLoader
import tsnb

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        loader = DataLoader([torch.zeros(1)] * 4, num_workers=1, multiprocessing_context=method)
        with tsnb.serve(loader, name=method), tsnb.attach(stream=method) as batches:
            print(method, len(list(batches)), flush=True)
"""


@pytest.mark.slow
@two_users
def test_a_scripts_own_loader_workers_import_nothing_from_the_working_directory(
    shared_directory: Path, tmp_path: Path
) -> None:
    """The script lies elsewhere and has never had that directory on its path; its workers have `-c` in theirs."""
    (tmp_path / "script.py").write_text(SCRIPT)
    called = [sys.executable, str(tmp_path / "script.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TSNB_RUNTIME_DIR": str(tmp_path / "run")}
    done = subprocess.run(
        called, cwd=shared_directory, env=environment, capture_output=True, text=True, check=False
    )
    assert not planted_code_that_ran(shared_directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "spawn 4" in done.stdout and "forkserver 4" in done.stdout


LOADER = """
import torch
from torch.utils.data import DataLoader
def make(): return DataLoader([torch.zeros(1)] * 2, num_workers=1, multiprocessing_context="spawn")
"""


@pytest.mark.slow
@two_users
def test_tsnb_serve_shadows_nothing_by_the_directory_it_is_called_in(shared_directory: Path) -> None:
    """Nothing is imported from a directory in which another user can put files; workers start without it."""
    own = shared_directory.parent / "own"
    own.mkdir(mode=0o755)
    (own / "mydata.py").write_text(
        "import mimetypes\ntry: import winreg\nexcept ImportError: pass\n" + LOADER
    )
    (shared_directory / "winreg.py").write_text((shared_directory / "torch.py").read_text())
    (shared_directory / "theirs.py").write_text(LOADER)
    command = [str(Path(sys.executable).parent / "tsnb"), "serve"]
    refused = subprocess.run(
        [*command, "theirs:make", "--name", "door"],
        cwd=shared_directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode and "A module that another user puts there would run as you" in refused.stderr
    serving = subprocess.Popen(
        [*command, "mydata:make", "--name", "door"],
        cwd=shared_directory,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{own}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert serving.stdout is not None
    line = serving.stdout.readline()
    serving.terminate()
    said = line + serving.communicate(timeout=240)[0]
    assert "serving 'door'" in said
    assert not planted_code_that_ran(shared_directory)


@two_users
def test_python_m_tsnb_imports_little_from_the_directory_it_is_called_in(shared_directory: Path) -> None:
    """What Python itself takes from there to find the module is beyond us; all that comes later is not."""
    for name in ALL_MODULES - {
        "argparse",
        "difflib",
        "secrets",
        "selectors",
        "socket",
        "json",
        "torch",
        "psutil",
    }:
        (shared_directory / f"{name}.py").unlink(missing_ok=True)
    called = [sys.executable, "-m", "tsnb", "list"]
    subprocess.run(called, cwd=shared_directory, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert not planted_code_that_ran(shared_directory)


NOTEBOOK = """
import os, sys, time
import torch
from torch.utils.data import DataLoader
import tsnb
from tsnb.hosting import serve_loader
from tsnb.kernels.hub import the_hub

served = serve_loader(DataLoader(torch.arange(64.0), batch_size=4, num_workers=1), "door")

class Loud(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, index):
        if index == 0: print("worker says hello")
        if index == 1: print("x" * 300_000 + "!")
        return torch.zeros(1)

def train():
    loader = DataLoader(Loud(), num_workers=1, persistent_workers=True)
    taken = [next(iter(loader)) for _ in range(1)], list(loader)
    with tsnb.attach(stream="door") as batches:
        for batch in batches: break
        print("ready", flush=True)
        time.sleep(300)

trials = [tsnb.run(train, name=name, env=env) for name, env in (("forked", {}), ("spawned", {"LC_TSNB_TEST": "1"}))]
while not all("ready" in trial.logs() and "!" in trial.logs() for trial in trials): time.sleep(0.05)
assert all("worker says hello" in trial.logs() and "x" * 300_000 in trial.logs() for trial in trials)
print("all there", flush=True)
time.sleep(300)
"""


@pytest.fixture
def busy_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Path]]:
    """Return a process with a stream, a forked and a spawned trial and their workers, and its runtime directory."""
    with tempfile.TemporaryDirectory(prefix="tsnb-") as runtime:
        monkeypatch.setenv("TSNB_RUNTIME_DIR", f"{runtime}/run")
        monkeypatch.setenv("TSNB_PROJECT_DIR", str(tmp_path))
        script = forking.start(NOTEBOOK, stdin=False)
        assert script.stdout is not None
        said = [script.stdout.readline()]
        while said[-1] and "all there" not in said[-1]:  # a trial's line may come between a print and its end
            said.append(script.stdout.readline())
        assert said[-1], "".join(said)
        yield script, Path(runtime) / "run"
        script.kill()
        script.wait(120)
        script.stdout.close()


def listening(family: str) -> dict[str, str]:
    """Return this machine's listening sockets by their inodes: where they listen."""
    found = {}
    for line in Path("/proc/net", family).read_text().splitlines()[1:]:
        words = line.split()
        if family == "unix":
            if int(words[3], 16) & 0x10000:  # it accepts connections
                found[words[6]] = " ".join(words[7:]) or "no name"
        elif words[3] in {"0A", "07"}:  # TCP that listens, UDP that is bound
            found[words[9]] = words[1]
    return found


def sockets_of(processes: list[psutil.Process]) -> set[str]:
    held = set()
    for process in processes:
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                held |= set(re.findall(r"^socket:\[(\d+)\]$", str(descriptor.readlink())))
    return held


KNOCK = """
    for where in sys.argv[1:]:
        kind = socket.SOCK_SEQPACKET if where.startswith("@tsnb") else socket.SOCK_STREAM
        with socket.socket(socket.AF_UNIX, kind) as caller:
            caller.settimeout(5.0)
            try:
                caller.connect(where.replace("@", chr(0), 1))
            except PermissionError:
                continue
            assert where.startswith("@"), f"another user was let in at {where}"
            assert caller.recv(1) == b"", f"another user was answered at {where}"
"""


@pytest.mark.slow
@two_users
def test_no_process_of_a_notebook_listens_where_another_user_gets_in(busy_notebook: Any) -> None:
    """Nothing on TCP or UDP; what listens locally is in a directory of one's own, or closes on a foreign uid."""
    script, _ = busy_notebook
    below = psutil.Process(script.pid).children(recursive=True)
    assert len(below) >= 6, "a fork server, a producer, two trials with a worker each"
    held = sockets_of([psutil.Process(script.pid), *below])
    for family in ("tcp", "tcp6", "udp", "udp6", "raw"):
        assert not held & listening(family).keys(), [
            listening(family)[i] for i in held & listening(family).keys()
        ]
    local = [where for inode, where in listening("unix").items() if inode in held]
    assert len(local) >= 16, "five a kernel, and the stream's own"

    does(KNOCK, *local)


ONE_TRIAL = """
import os, sys
os.umask(int(sys.argv[1], 8))
import tsnb

def train():
    import builtins
    mask = os.umask(0)
    print("planted", hasattr(builtins, "planted"), "own", hasattr(builtins, "own"), "umask", f"{mask:03o}",
          "named", os.environ.get("IPYTHONDIR"))

if __name__ == "__main__":
    tsnb.run(train).wait(120)
"""


def one_trial(home: Path, umask: str = "022", start: str = "fork") -> str:
    """Run a trial with that home; return what the script prints."""
    (home / "one.py").write_text(ONE_TRIAL)
    environment = {**os.environ, "HOME": str(home), "TSNB_PROJECT_DIR": str(home), "TSNB_START": start}
    environment.pop("IPYTHONDIR", None)
    words = [sys.executable, str(home / "one.py"), umask]
    done = subprocess.run(
        words,
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home that other users can enter, and not write to."""
    (tmp_path / "home").mkdir(mode=0o755)
    return reachable(tmp_path / "home")


@pytest.mark.slow
@pytest.mark.parametrize(("umask", "start"), [("000", "fork"), ("002", "spawn")])
def test_what_a_trial_makes_of_ipython_s_is_this_users_alone(home: Path, umask: str, start: str) -> None:
    """IPython runs what lies in its `startup` in each kernel. The trial's own code has the umask of the script."""
    said = one_trial(home, umask, start)
    assert f"planted False own False umask {umask} named None" in said
    assert "IPython" not in said
    made = [path for path in home.rglob("*") if path.is_dir() and "__pycache__" not in path.parts]
    assert home / ".ipython/profile_default/startup" in made
    assert not {f"{path} {path.stat().st_mode:o}" for path in made if path.stat().st_mode & 0o077}


@pytest.mark.slow
@two_users
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_startup_file_that_another_user_plants_runs_in_no_trial(home: Path, start: str) -> None:
    """The directory is from before, or another program's. One's own startup files run once it is safe."""
    startup = home / ".ipython/profile_default/startup"
    startup.mkdir(parents=True)
    startup.chmod(0o777)
    (startup / "50-mine.py").write_text("import builtins; builtins.own = True")
    plant = "open(sys.argv[1], 'w').write('import builtins; builtins.planted = True')"
    does(plant, startup / "00-eve.py")
    said = one_trial(home, start=start)
    assert "planted False own False umask 022 named None" in said
    assert f"{startup} can be written by other users (its mode is 0777)" in said
    commands = []
    for _ in range(2):  # the mode first, then the file
        commands.append(re.findall("`(.+?)`", said)[0])
        subprocess.run(commands[-1], shell=True, check=True)
        said = one_trial(home, start=start)
    assert commands == [f"chmod -R go-w {home}/.ipython", f"rm {startup}/00-eve.py"]
    assert "planted False own True" in said and "IPython" not in said
