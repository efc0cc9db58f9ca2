"""Checks of this machine and this environment: they look, and change nothing.

System, cores, memory, limits, GPUs; the directories in use, which only this user may enter and exchange; the live
panel's bundle, and the front-end packages of the environment that JupyterLab runs from.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from jupyter_core.paths import jupyter_path

from tsnb.checks.findings import Finding
from tsnb.checks.hosts import panel_elsewhere, server
from tsnb.config import MOUNT_PROC, nobody_elses, runtime_directory, tells_of_processes
from tsnb.discovery.registry import socket_directory
from tsnb.errors import TsnbError
from tsnb.kernels.ipython_directory import wrong_with_ipython
from tsnb.machine.cores import Machine
from tsnb.machine.gpus import Gpus
from tsnb.machine.memory import free_memory
from tsnb.native.memfd import SWITCH, has_memfd, portable
from tsnb.private.directories import Unsafe
from tsnb.records.project import looked_at, project_directory

__all__ = [
    "cores",
    "extras",
    "files",
    "gpus",
    "installed",
    "memory",
    "only_you",
    "open_files",
    "panel",
    "system",
]

_ASK_TORCH = (
    "import torch; on = torch.cuda; "
    "print(', '.join(map(on.get_device_name, range(on.device_count()))) if on.is_available() else '')"
)
ANSWER_S = 60.0
"""How long torch may take to start CUDA: seconds, unless the machine is very busy or the driver hangs."""
LITTLE_BYTES = 2 * 2**30
"""Less free memory than this is soon used up by torch in a few trials (35 MiB each, forked) and a loader's workers."""
SMALL_SHM_BYTES = 256 * 2**20
"""A /dev/shm that small, as in containers, is soon full: torch's own workers keep batches there."""
FEW_FILES = 1024
"""Descriptors that a producer with some dozens of consumers and some workers stays far below."""
ENOUGH_FILES = 4096
"""What to ask for where the system would give any number."""
EXTRAS = {
    "results as DataFrames": "pandas",
    "Parquet": "pyarrow",
    "Optuna": "optuna",
    "figures as PNG": "kaleido",
    "the panel next to the notebook": "sidecar",
    "TensorBoard": "tensorboard",
    "MLflow": "mlflow-skinny",
    "trackio": "trackio",
    "tools for coding agents": "mcp",
    "streams across several machines": "ray",
}
"""What tsnb works with where it is installed, and the package that it needs."""


def system() -> Finding:
    """Look at system, Python and torch."""
    import torch

    here = f"{platform.system()} {platform.release()}, Python {platform.python_version()}, torch {torch.__version__}"
    if not sys.platform.startswith(("linux", "darwin")):
        return Finding("system", "fails", f"{here}.", "Run it on Linux, in WSL2, or in a Linux container.")
    if not tells_of_processes():
        return Finding("system", "fails", f"{here}. There is no /proc.", MOUNT_PROC)
    if not portable():
        return Finding(
            "system", "works", f"{here}. Batches are in a memfd, and packets use SEQPACKET sockets."
        )
    says = f"{here}. Batches are in POSIX shared memory, and packets use stream sockets (the portable way)."
    if has_memfd():
        says, advice = f"{says} {SWITCH} is set.", "Unset it to use memfd and SEQPACKET sockets."
    elif sys.platform == "darwin":
        advice = "This way was written for macOS and tested on Linux only: docs/environments.md."
    else:
        advice = (
            "memfd is not available: the C library lacks it (glibc has it since 2.27), or the system "
            "refuses it (seccomp profile of a container). Make sure that /dev/shm has room for batches."
        )
    return Finding("system", "limited", says, advice)


def cores() -> Finding:
    """Count the cores that this process may use."""
    usable, there = Machine().cores(), os.cpu_count() or 1
    of = f" of the machine's {there}" if usable < there else ""
    says = f"{usable} core{'s' if usable > 1 else ''}{of} can be used."
    if usable == 1:
        advice = (
            "The loader and the models take turns on one core. Sharing saves work, but nothing runs in "
            "parallel."
        )
        return Finding("cores", "limited", says, advice)
    return Finding("cores", "works", says)


def memory() -> Finding:
    """Look at what memory is left."""
    free = free_memory()
    if free is None:
        return Finding("memory", "limited", "The system does not report how much memory is free.")
    says = f"{free.size / 2**30:.1f} GiB {free.where} are free."
    if free.size < LITTLE_BYTES:
        return Finding("memory", "limited", says, "Run few trials at once, and use a small --window.")
    return Finding("memory", "works", says)


def open_files() -> Finding:
    """Look at the limit on open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FEW_FILES:
        return Finding("open files", "works", f"A process may open {_count(soft)} files.")
    most = ENOUGH_FILES if hard == resource.RLIM_INFINITY else hard  # macOS: 256, and no end
    advice = f"Run `ulimit -n {most}` before you start the notebook or script."
    return Finding("open files", "limited", f"A process may open only {soft} files.", advice)


def _count(limit: int) -> str:
    return "any number of" if limit == resource.RLIM_INFINITY else str(limit)


def files() -> Finding:
    """Look at the directory where producers are found by name, and at /dev/shm."""
    try:
        says = f"Streams are found by name in {runtime_directory()}."
        if portable():
            says += f" Their sockets are files in {socket_directory()}."
    except TsnbError as error:
        return Finding("directories", "fails", str(error))
    shm = Path("/dev/shm")  # noqa: S108  # torch's place, not ours
    if sys.platform == "darwin":  # which keeps no shared memory in a directory
        return Finding("directories", "works", says)
    size = shutil.disk_usage(shm).total if shm.is_dir() else 0
    if size < SMALL_SHM_BYTES:
        says += f" /dev/shm has {size / 2**20:.0f} MiB. "
        if portable():
            says += "tsnb keeps its batches there, and so do torch's own workers."
            which = "A window of large batches"
        else:
            says += "tsnb does not use it, but torch's own workers do."
            which = "A loader that is not shared"
        advice = f"{which} may fail because of that. Start the container with --shm-size=2g."
        return Finding("directories", "limited", says, advice)
    return Finding("directories", "works", says)


def gpus() -> Finding:
    """Look for GPUs, and whether torch can use them."""
    import torch

    found = Gpus().look()
    try:
        names = _gpus_of_torch()
    except subprocess.TimeoutExpired as error:
        says = f"torch did not list its GPUs within {error.timeout:.0f} s. tsnb stopped this check."
        advice = (
            "The machine may be very busy, or the driver hangs. Run `nvidia-smi`. If it answers, run "
            "`tsnb doctor` again."
        )
        return Finding("GPU", "limited", says, advice)
    if names:
        return Finding(
            "GPU", "works", f"torch can use {names}. `tsnb devices` lists the processes that use them."
        )
    if not found and torch.backends.mps.is_available():
        says = (
            "torch can use this Mac's GPU (device `mps`). Batches are shared in memory, and each trial "
            "copies its own."
        )
        return Finding("GPU", "works", says)
    if not found:
        return Finding("GPU", "absent", "No GPU found. Models compute on the CPU.")
    says = f"{len(found)} GPUs are here (`tsnb devices`), but torch {torch.__version__} cannot use them."
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda and hidden is not None:
        advice = f"CUDA_VISIBLE_DEVICES={hidden!r} is set and may hide them. Unset it."
    else:
        advice = (
            "Install a CUDA build of torch that fits the driver: https://pytorch.org/get-started/locally."
        )
    return Finding("GPU", "limited", says, advice)


def _gpus_of_torch() -> str:
    """Return the names of the GPUs that torch can use; empty: there is none.

    Another process asks torch, because the question starts CUDA. A notebook would hold about half a GiB of its GPU from
    then on.
    """
    import torch

    if not (torch.version.cuda or torch.version.hip):
        return ""
    asked = subprocess.run(
        [sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, check=False, timeout=ANSWER_S
    )
    return asked.stdout.strip()


def extras() -> Finding:
    """List what tsnb works with where it is installed."""
    here = [f"{name} ({found})" for name, package in EXTRAS.items() if (found := installed(package))]
    missing = [
        f"{name} (pip install {package})" for name, package in EXTRAS.items() if not installed(package)
    ]
    says = f"Installed: {', '.join(here) or 'none'}."
    if missing:
        return Finding("extras", "absent", f"{says} Not installed, and optional: {', '.join(missing)}.")
    return Finding("extras", "works", says)


def installed(package: str) -> str | None:
    """Return a package's version; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


PART = "only you"


def only_you() -> Finding:
    """Look at the directories of tsnb, of the records and of IPython, and at all above: owner, mode, links."""
    try:
        says = [f"Only you can enter {runtime_directory()}."]
    except TsnbError as error:
        return Finding(PART, "fails", str(error))
    advice = []
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    if xdg and not os.environ.get("TSNB_RUNTIME_DIR") and not nobody_elses(Path(xdg)):
        says.append(f"Another user could replace XDG_RUNTIME_DIR={xdg}, so it is not used.")
        advice.append("Unset XDG_RUNTIME_DIR if you used `su` or `sudo -E`.")
    place, wrong = looked_at()
    if wrong is None:
        says.append(f"Records: {place}.")
    else:
        says.append(_told(place, wrong))
        mend = f"Run `{wrong.mend}`, or set" if wrong.mend else "Set"
        advice.append(f"{mend} TSNB_PROJECT_DIR to a directory that only you can write to.")
    wrong_there, mend_there = wrong_with_ipython(os.environ)
    if wrong_there:
        says.append(f"Trials run no startup files of IPython, because {wrong_there}.")
        advice.append(mend_there)
    return Finding(PART, "limited" if advice else "works", " ".join(says), " ".join(advice))


def _told(place: Path, wrong: Unsafe) -> str:
    """Say what is wrong with the place of the records, and what follows."""
    if os.environ.get("TSNB_PROJECT_DIR") and wrong.path != str(place):
        return f"Records: {place}, which TSNB_PROJECT_DIR selects, although {wrong}."
    if wrong.mend.startswith("chmod 700"):
        return f"Records: {wrong}, until the next trial closes it to other users."
    try:
        return (
            f"Records are not stored in {place}, because {wrong}. They go to {project_directory(make=False)}."
        )
    except TsnbError:
        return f"Records cannot be stored in {place}, because {wrong}."


NEEDED = {"ipywidgets": "@jupyter-widgets/jupyterlab-manager", "anywidget": "anywidget"}
"""Packages, and the front-end parts that they bring into the JupyterLab of the environment they are installed in."""


def panel() -> Finding:
    """Look whether a notebook could show the panel."""
    spec = find_spec("tsnb.panel")
    bundle = Path(str(spec.origin)).parent / "static" / "panel.js" if spec else Path()
    if not bundle.is_file():
        advice = (
            "Install tsnb again (pip install --force-reinstall --no-deps tsnb), or in a checkout: make lab."
        )
        return Finding("panel", "fails", f"The bundle of the panel is missing: {bundle}.", advice)
    elsewhere = panel_elsewhere()
    if elsewhere is not None:
        return elsewhere
    folders = [Path(folder) for folder in jupyter_path("labextensions")]
    missing = [
        name for name, part in NEEDED.items() if not any((folder / part).is_dir() for folder in folders)
    ]
    lab = installed("jupyterlab")
    if missing:
        says = f"The JavaScript files of {' and '.join(missing)} are missing in this environment."
        return Finding("panel", "limited", says, f"pip install --force-reinstall {' '.join(missing)}")
    if lab is None:
        says = "The notebook part is installed, but JupyterLab is not in this environment."
        advice = (
            "If JupyterLab runs from another environment, install there: pip install ipywidgets anywidget."
        )
        return Finding("panel", "limited", says, advice)
    host = server()
    says = f"{host} started this kernel, and its page shows the live panel. " if host else ""
    return Finding("panel", "works", f"{says}JupyterLab {lab} in this environment can show it.")
