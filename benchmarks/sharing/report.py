"""What the rows say: a table, the targets beside what was reached, and both written into the documents."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sharing.rows import Report, Row
from benchmarks.sharing.workloads import WORKLOADS

__all__ = ["into_documents", "pairs", "summary", "table", "targets"]

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "benchmarks" / "RESULTS.md"
DOCSTRING = Path(__file__).with_name("__init__.py")
ALIKE = 1.02
"""Two amounts of memory are the same up to this ratio."""

IDLE_LOAD = 0.5

Line = tuple[str, ...]
HEAD: Line = (
    *("batches", "N", "system", "samples/s", "/plain", "/separate", "CPU s/1,000", "/plain"),
    *("p50 us", "p99 us", "shared MB", "PSS MB", "runs"),
)


def _ratio(one: float, other: Row | None, of: str) -> str:
    return f"{one / getattr(other, of):.2f}" if other is not None else "-"


def _line(report: Report, row: Row) -> Line:
    start = (row.workload, str(row.consumers), row.system)
    if row.unable:
        return (*start, row.unable)
    plain = report.find(row.workload, "plain", 1)
    separate = report.find(row.workload, "separate", row.consumers)
    return (
        *start,
        f"{row.samples_per_s:,.0f}",
        _ratio(row.samples_per_s, plain, "samples_per_s"),
        _ratio(row.samples_per_s, separate, "samples_per_s"),
        f"{row.cpu_s_per_1000:.4f}",
        _ratio(row.cpu_s_per_1000, plain, "cpu_s_per_1000"),
        "-" if row.latency_p50_us is None else f"{row.latency_p50_us:,.0f}",
        "-" if row.latency_p99_us is None else f"{row.latency_p99_us:,.0f}",
        f"{row.shared_bytes / 1e6:.1f}",
        f"{row.pss_bytes / 1e6:.0f}",
        f"{row.runs} of {row.runs + row.stalled}",
    )


def table(report: Report) -> str:
    """Return the rows as plain text."""
    shape = "{:8} {:>2} {:13} {:>9} {:>6} {:>9} {:>11} {:>6} {:>8} {:>8} {:>9} {:>6} {:>7}"
    lines = [shape.format(*HEAD).rstrip()]
    for row in report.rows:
        cells = _line(report, row)
        plain = "{:8} {:>2} {:13} {}" if row.unable else shape
        lines.append(plain.format(*cells).rstrip())
    return "\n".join(lines)


def _markdown(report: Report) -> str:
    lines = [f"| {' | '.join(HEAD)} |", "|---|--:|---|" + "--:|" * 9 + "---|"]
    for row in report.rows:
        cells = _line(report, row)
        lines.append(f"| {' | '.join((*cells, *[''] * (len(HEAD) - len(cells))))} |")
    return "\n".join(lines)


# ---- targets ----


def targets(report: Report) -> list[Line]:
    """Return (target, measured, verdict) for each; nothing is asserted: a busy machine reaches none of them."""
    return [
        *_at_least(
            report,
            "jpeg: pace of 4 on one loader / 4 with a loader each (limit 4)",
            3.8,
            "jpeg",
            4,
            "separate",
            4,
        ),
        *_at_most(report, "jpeg: CPU for 4 on one loader / one plain loader", 1.10, "jpeg", 4, "plain", 1),
        *_at_least(report, "img-f32: pace of 1 / plain", 2.0, "img-f32", 1, "plain", 1),
        *_at_least(report, "img-f32: pace of each of 8 / of 1", 0.95, "img-f32", 8, "tsnb", 1),
        *_at_least(report, "tiny: pace of each of 4 / plain", 4.0, "tiny", 4, "plain", 1),
        *_at_least(report, "tiny: pace of 1 / the floor", 0.5, "tiny", 1, "floor", 1),
        *_latency(report, 1, 50.0, calm=True),
        *_latency(report, 8, 150.0, calm=True),
        *_latency(report, 1, 50.0, calm=False),
        *_latency(report, 8, 150.0, calm=False),
        *_memory(report),
    ]


def _at_least(
    report: Report, what: str, aim: float, workload: str, consumers: int, other: str, others: int
) -> Iterator[Line]:
    ours, theirs = report.find(workload, "tsnb", consumers), report.find(workload, other, others)
    if ours is not None and theirs is not None:
        ratio = ours.samples_per_s / theirs.samples_per_s
        yield f"{what} >= {aim}", f"{ratio:.2f}", _verdict(ratio / aim)


def _at_most(
    report: Report, what: str, aim: float, workload: str, consumers: int, other: str, others: int
) -> Iterator[Line]:
    ours, theirs = report.find(workload, "tsnb", consumers), report.find(workload, other, others)
    if ours is not None and theirs is not None:
        ratio = ours.cpu_s_per_1000 / theirs.cpu_s_per_1000
        yield f"{what} <= {aim}", f"{ratio:.2f}", _verdict(aim / ratio)


def _latency(report: Report, consumers: int, aim_us: float, *, calm: bool) -> Iterator[Line]:
    found = {
        row.workload: row.latency_p50_us
        for row in report.rows
        if row.system == "tsnb" and row.consumers == consumers and row.latency_p50_us is not None
        if WORKLOADS[row.workload].calm == calm
    }
    if found:
        told = ", ".join(f"{workload} {us:.0f}" for workload, us in found.items())
        verdict = _verdict(aim_us / max(found.values()))
        loader = "that rests" if calm else "at full pace"
        yield f"latency p50 at N = {consumers}, a loader {loader} <= {aim_us:.0f} us", told, verdict


def _memory(report: Report) -> Iterator[Line]:
    most = max((row.consumers for row in report.rows), default=1)
    ratios = {}
    for workload in dict.fromkeys(row.workload for row in report.rows if not WORKLOADS[row.workload].calm):
        one, many = report.find(workload, "tsnb", 1), report.find(workload, "tsnb", most)
        if most > 1 and one is not None and many is not None:
            ratios[workload] = many.shared_bytes / one.shared_bytes
    if ratios:
        told = ", ".join(f"{workload} {ratio:.2f}" for workload, ratio in ratios.items())
        yield f"shared bytes at N = {most} / at N = 1: 1", told, _verdict(ALIKE / max(ratios.values()))


def _verdict(share: float) -> str:
    """Return whether a target was reached; `share` is 1 at the target and more beyond."""
    return "reached" if share >= 1 else f"not reached: {share:.2f} of it"


# ---- the two pairs of arena and channel ----


def pairs(report: Report) -> list[str]:
    """Return what the portable pair gives and costs, over what Linux's own does, where both were measured."""
    told = []
    for row in report.rows:
        other = report.find(row.workload, "tsnb", row.consumers)
        if row.system != "portable" or row.unable or other is None:
            continue
        pace = row.samples_per_s / other.samples_per_s
        said = f"pace {pace:.2f}, CPU {row.cpu_s_per_1000 / other.cpu_s_per_1000:.2f}"
        if row.latency_p50_us and other.latency_p50_us:
            said += f", p50 {row.latency_p50_us / other.latency_p50_us:.2f}"
        told.append(f"{row.workload}, N = {row.consumers}: {said}")
    return told


# ---- all of it ----


def _conditions(report: Report) -> str:
    machine = report.machine
    others = " (a busy machine: other work ran at the same time)" if machine.load > IDLE_LOAD else ""
    return (
        f"{machine.cores} cores ({machine.processor}), {machine.memory_bytes / 2**30:.0f} GiB; "
        f"Python {machine.python}, torch {machine.torch}, tsnb {machine.tsnb}; medians of up to {report.repeats} "
        f"interleaved runs of {report.seconds:g} s; load {machine.load:.1f} before the first{others}"
    )


def _epochs(report: Report) -> Iterator[str]:
    for epoch in report.epochs:
        given = epoch.unable or " and ".join(f"{count:,}" for count in epoch.delivered)
        yield f"{epoch.system}: {given} of {epoch.samples:,} samples"


def summary(report: Report) -> str:
    """Return everything as plain text."""
    parts = [_conditions(report), "", table(report)]
    if judged := targets(report):
        wide = max(len(what) for what, _, _ in judged)
        parts += ["", *(f"{what:{wide}}  {told}  ({verdict})" for what, told, verdict in judged)]
    if paired := pairs(report):
        parts += ["", "portable / tsnb:", *(f"  {line}" for line in paired)]
    if report.epochs:
        parts += ["", "one epoch to its end, two consumers:", *(f"  {line}" for line in _epochs(report))]
    return "\n".join(parts)


def into_documents(report: Report) -> None:
    """Replace the last figures in this package's docstring and in benchmarks/RESULTS.md."""
    conditions = "\n".join(textwrap.wrap(_conditions(report), 110))
    _replace(DOCSTRING, f"\n{conditions}\n\n{table(report)}\n", "<rows>", "</rows>")
    judged = ["| target | measured | |", "|---|---|---|"]
    judged += [f"| {what} | {told} | {verdict} |" for what, told, verdict in targets(report)]
    _replace(DOCUMENT, "\n".join(judged), "<!-- targets -->", "<!-- /targets -->")
    _replace(
        DOCUMENT, "\n".join(f"- {line}" for line in _epochs(report)), "<!-- epochs -->", "<!-- /epochs -->"
    )
    _replace(DOCUMENT, f"{_conditions(report)}.\n\n{_markdown(report)}", "<!-- rows -->", "<!-- /rows -->")


def _replace(path: Path, text: str, begin: str, end: str) -> None:
    """Put `text` between two marks, each on a line of its own."""
    old = path.read_text(encoding="utf-8")
    pattern = re.compile(rf"(?<=^{re.escape(begin)}\n).*?(?=^{re.escape(end)}$)", re.DOTALL | re.MULTILINE)
    new, count = pattern.subn(lambda _: f"{text}\n", old)
    if count != 1:
        raise ValueError(
            f"{path} shall have one line {begin!r} with {end!r} below it, and has {count}: put them in."
        )
    path.write_text(new, encoding="utf-8")
