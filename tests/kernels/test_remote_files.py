"""Files that come from another machine of a cluster: private here, and nowhere but in their folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tsnb.cluster.actor import KernelActor
from tsnb.cluster.remote_kernel import RemoteChild
from tsnb.private.directories import make_private


def asking(ask: Any) -> RemoteChild:
    """Return a kernel's stand-in here, without a cluster: `ask` answers in the actor's place."""
    child = RemoteChild.__new__(RemoteChild)

    async def answer(method: str, *arguments: Any) -> Any:
        return ask(method, *arguments)

    child._ask = answer  # type: ignore[method-assign]
    return child


def test_a_folder_arrives_private_and_whole(tmp_path: Path) -> None:
    """The real actor's answers, over no network."""
    (tmp_path / "there" / "deep").mkdir(parents=True)
    (tmp_path / "there" / "deep" / "net.pt").write_bytes(b"net")
    actor = KernelActor.__new__(KernelActor)
    hub = make_private(tmp_path / "hub")
    child = asking(lambda method, *arguments: getattr(actor, method)(*arguments))
    asyncio.run(child.receive(str(tmp_path / "there"), hub / "got"))
    assert (hub / "got" / "deep" / "net.pt").read_bytes() == b"net"
    assert not [path for path in hub.rglob("*") if path.stat().st_mode & 0o077]
    assert not (tmp_path / "there").exists()


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    """Whatever the other machine says its files are called."""
    hub = make_private(tmp_path / "hub")
    child = asking(lambda method, *_: ["../../evil"] if method == "files" else b"")
    with pytest.raises(ValueError, match="evil"):
        asyncio.run(child.receive("there", hub / "got"))
    assert not (tmp_path / "evil").exists() and not (tmp_path.parent / "evil").exists()
