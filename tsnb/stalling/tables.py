"""How `Stalls` is shown: its sentences, what was measured, and what k trials would get. Pure: numbers in, text out."""

from __future__ import annotations

from html import escape

from tsnb.stalling.sharing import Loading
from tsnb.stalling.wording import Told, number_of, rate, sentences, times

__all__ = ["html", "plain_text", "tables"]

Row = list[str]


def tables(told: Told) -> tuple[list[Row], list[Row]]:
    """Return what was measured, and what k trials would get; each with its head."""
    measured = [["measured", "samples/s", "CPU ms a batch"]]
    measured.append(["loader alone", rate(told.loader_per_s), _cost(told, told.plain)])
    if told.computing is not None and told.model_per_s is not None:
        each_ms = 1000 * told.batch_size * told.computing.cpu_s
        measured.append(["model alone", rate(told.model_per_s), f"{each_ms:.3g}"])
        if told.together_per_s is not None:
            measured.append(["both together", rate(told.together_per_s), ""])
    measured.append(["loader alone, shared", rate(told.served_per_s), _cost(told, told.served)])
    if told.together_served_per_s is not None:
        measured.append(["both together, shared", rate(told.together_served_per_s), ""])
    foretold = [
        ["trials", "a loader each", "limit", "one shared loader", "limit", "gain", "CPU saved"],
    ]
    for number in _numbers(told.trials):
        found = told.sharing(number)
        own, one = found.separate, found.shared
        paces = [rate(own.samples_per_s), own.limit, rate(one.samples_per_s), one.limit]
        foretold.append([str(number), *paces, times(found.gain), f"{found.cpu_saved:.0%}"])
    return measured, foretold


def plain_text(told: Told) -> str:
    """Return the sentences and the tables as text."""
    blocks = ["\n".join(sentences(told))]
    for rows in tables(told):
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, _below(told)])


def html(told: Told) -> str:
    """Return the same for a notebook."""
    first, *others = sentences(told)
    parts = [f"<p><b>{escape(first)}</b> {escape(' '.join(others))}</p>"]
    for head, *rows in tables(told):
        top = "".join(f"<th style='text-align:left'>{escape(word)}</th>" for word in head)
        body = "".join(
            "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in rows
        )
        style = "display:inline-table;margin-right:2em;vertical-align:top"
        parts.append(f"<table style='{style}'><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>")
    return "".join([*parts, f"<p><small>{escape(_below(told))}</small></p>"])


def _below(told: Told) -> str:
    threads = f"{told.threads} torch thread{'s' if told.threads > 1 else ''} each"
    return (
        f"Samples/s of each trial, batches of {told.batch_size}, {number_of(told.cores)} cores, {threads}; trials that "
        "compute as long as the step that was measured. .sharing(k) answers for other numbers."
    )


def _numbers(trials: int) -> list[int]:
    """Return the numbers of trials that the table shows."""
    return sorted({*range(1, min(trials, 4) + 1), *(n for n in (8, 16, 32) if n < trials), trials})


def _cost(told: Told, loading: Loading) -> str:
    return f"{1000 * told.batch_size * (loading.cpu_s + loading.taking_s):.3g}"
