"""`tsnb.devices()` as text and as HTML. Reads the plain values only; programs find them in `data-` attributes."""

from __future__ import annotations

import html
from collections.abc import Mapping

from tsnb.hardware.inventory import Gpu, Inventory

__all__ = ["as_html", "as_text"]

_COLUMNS = ("device", "name", "busy", "memory", "used by")
_GIB = 1 << 30


def as_text(devices: Inventory) -> str:
    """Return the table for a terminal."""
    lines = [_cores(devices)]
    if devices.gpus:
        rows = [_COLUMNS, *map(_cells, devices.gpus)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *_rest(devices)])


def as_html(devices: Inventory) -> str:
    """Return the table for a notebook."""
    parts = [f"<p>{html.escape(_cores(devices))}</p>"]
    if devices.gpus:
        head = "".join(f"<th style='text-align:left'>{name}</th>" for name in _COLUMNS)
        body = "".join(_row(gpu) for gpu in devices.gpus)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    parts += [f"<p>{html.escape(line)}</p>" for line in _rest(devices)]
    facts = {
        "gpus": len(devices.gpus),
        "cores": devices.cores.usable,
        "mps": "running" if devices.mps and devices.mps.running else "none",
    }
    return f"<div data-tsnb='devices'{_data(facts)}>{''.join(parts)}</div>"


def _row(gpu: Gpu) -> str:
    facts = {
        "device": gpu.device,
        "uuid": gpu.uuid,
        "used-bytes": gpu.used_bytes,
        "total-bytes": gpu.total_bytes,
        "busy": "" if gpu.busy is None else gpu.busy,
        "pids": " ".join(str(user.pid) for user in gpu.users),
    }
    cells = "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in _cells(gpu))
    return f"<tr{_data(facts)}>{cells}</tr>"


def _data(facts: Mapping[str, object]) -> str:
    return "".join(f" data-{name}='{html.escape(str(value), quote=True)}'" for name, value in facts.items())


def _cells(gpu: Gpu) -> tuple[str, ...]:
    busy = "not told" if gpu.busy is None else f"{gpu.busy:.0%}"
    memory = f"{gpu.used_bytes / _GIB:.1f} of {gpu.total_bytes / _GIB:.1f} GiB"
    return gpu.device, gpu.name, busy, memory, _users(gpu)


def _users(gpu: Gpu) -> str:
    if not gpu.users_told:
        return "not told here"
    words = []
    for user in gpu.users:
        held = "" if user.used_bytes is None else f", {user.used_bytes / _GIB:.1f} GiB"
        words.append(f"{user.name or 'somebody'} (pid {user.pid}{held})")
    return "; ".join(words) or "nobody"


def _cores(devices: Inventory) -> str:
    cores = devices.cores
    text = f"{cores.usable} of {cores.machine} cores"
    if cores.quota is not None:
        text += f" (this container's quota: {cores.quota:g})"
    elif cores.allowed < cores.machine:
        text += " (those that this process may run on)"
    return text if devices.gpus else f"{text}; no GPU: {devices.obstacle}"


def _rest(devices: Inventory) -> list[str]:
    lines = []
    mps = devices.mps
    if mps is not None:
        share = "" if mps.percent is None else f", {mps.percent:g} % of the threads for each process"
        lines.append(f"MPS runs{share} ({mps.directory})" if mps.running else "MPS does not run")
    lines.append(f"torch {devices.torch}" if devices.torch else "torch is not installed")
    return [*lines, f"energy: {devices.energy}", *devices.notes]
