"""What stands in for `nvidia-cuda-mps-control`, which comes with NVIDIA's driver only: a daemon and its line protocol.

`install` puts it on the PATH under the real one's name. It does what NVIDIA's documentation says of that one, in real
processes: `-d` leaves a daemon with a socket `control` and a file with its number in CUDA_MPS_PIPE_DIRECTORY; without
arguments each line of stdin is put to the daemon, and its answer printed. `quit` ends it; its socket stays. What its
server and clients are, and where it misbehaves, is in `ways.json` beside it, which tests write.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

NAME = "nvidia-cuda-mps-control"


def install(folder: Path, **ways: Any) -> Path:
    """Put the program into a folder; return its file of ways.

    Args:
        folder: To be on the PATH.
        ways: `clients`: process numbers by their server's; `mute`: the daemon answers nothing; `stays`: nor does it
            quit; `fails`: what `-d` says before it fails.
    """
    program = folder / NAME
    program.write_text(f"#!{sys.executable} -S\n{Path(__file__).read_text()}")
    program.chmod(0o755)
    (folder / "ways.json").write_text(json.dumps(ways))
    return folder / "ways.json"


def _ways() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("ways.json").read_text())
    return found


def _answer(line: str) -> str:
    ways = _ways()
    word, _, server = line.partition(" ")
    if word == "get_server_list":
        return "".join(f"{pid}\n" for pid in ways.get("clients", {}))
    if word == "get_client_list":
        return "".join(f"{pid}\n" for pid in ways["clients"][server])
    return ""


def _daemon(pipes: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(pipes / "control"))
        listening.listen()
        number = pipes / f"{NAME}.pid"
        number.write_text(str(os.getpid()))
        while True:
            talk, _ = listening.accept()
            with contextlib.suppress(OSError), talk, talk.makefile("r") as lines:  # who asked may have gone
                for line in map(str.strip, lines):
                    while _ways().get("mute"):
                        time.sleep(0.05)
                    if line == "quit" and not _ways().get("stays"):
                        number.unlink()
                        return
                    talk.sendall(f"{_answer(line)}.\n".encode())


def _start(pipes: Path) -> int:
    if fails := _ways().get("fails"):
        print(fails)
        return 1
    if os.fork():
        return 0
    os.setsid()
    if os.fork():
        os._exit(0)
    _daemon(pipes)
    return 0


def _ask(pipes: Path) -> int:
    with socket.socket(socket.AF_UNIX) as talk:
        try:
            talk.connect(str(pipes / "control"))
        except OSError:
            print("Cannot find MPS control daemon process", file=sys.stderr)
            return 1
        with talk.makefile("r") as answers:
            for line in sys.stdin:
                talk.sendall(line.encode())
                for answer in answers:
                    if answer == ".\n":
                        break
                    sys.stdout.write(answer)
    return 0


if __name__ == "__main__":
    directory = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    sys.exit(_start(directory) if sys.argv[1:] == ["-d"] else _ask(directory))
