"""How many vCPUs a GPU needs so that its model does not wait, and what an epoch costs then. Pure.

With c the CPU seconds of the training process a sample, p those of preparing one, t those of taking it, and m the
seconds that a step takes: a trial with a loader of its own needs (p + t + c) / m vCPUs. With k equal trials on one
loader each needs (p / k + t + c) / m. DS-Analyzer answers the first with the number of workers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from tsnb.stalling.figures import Interval, between, plain, rate
from tsnb.stalling.sharing import Way
from tsnb.text.printable import harmless
from tsnb.text.words import html_table, short_number, text_table

__all__ = ["Need", "Sizing", "sized"]


@dataclass(frozen=True)
class Need:
    """What one way of loading needs."""

    vcpus: float
    """For each GPU, all processes together."""
    workers: float
    """Loader workers for each GPU, of those vCPUs; with sharing a part of the one loader's."""
    epoch_price: float | None
    """Of one trial's epoch, in the currency of the prices; None where a price or the epoch's length is not known."""
    vcpus_interval: Interval | None = None
    """What `vcpus` lies between in 80 of 100 cases; None: not known."""
    price_interval: Interval | None = None
    """The same of `epoch_price`."""
    workers_interval: Interval | None = None
    """The same of `workers`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, for JSON."""
        return {
            "vcpus": self.vcpus,
            "vcpus_interval": plain(self.vcpus_interval),
            "workers": self.workers,
            "workers_interval": plain(self.workers_interval),
            "epoch_price": self.epoch_price,
            "epoch_price_interval": plain(self.price_interval),
        }


@dataclass(frozen=True, repr=False)
class Sizing:
    """vCPUs that each GPU needs, with a loader each and on one loader. Shown as a table."""

    gpus: int
    """GPUs that train at once, a trial each."""
    samples_per_s: float
    """Of each trial: its model does not wait."""
    separate: Need
    """With a loader each."""
    shared: Need
    """On one loader."""
    samples_interval: Interval | None = None
    """What `samples_per_s` lies between in 80 of 100 cases; None: not known."""
    basis: str = ""
    """What it was calculated from, a sentence."""

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, for JSON."""
        return {
            "gpus": self.gpus,
            "samples_per_s": self.samples_per_s,
            "samples_per_s_interval": plain(self.samples_interval),
            "separate": self.separate.to_dict(),
            "shared": self.shared.to_dict(),
            "basis": self.basis,
        }

    def _rows(self) -> list[list[str]]:
        def row(name: str, need: Need) -> list[str]:
            price = "unknown" if need.epoch_price is None else _price(need.epoch_price)
            vcpus = f"{_vcpus(need.vcpus)}{between(need.vcpus_interval, _vcpus, brackets=True)}"
            workers = f"{_vcpus(need.workers)}{between(need.workers_interval, _vcpus, brackets=True)}"
            price += between(need.price_interval, _price, brackets=True)
            return [name, vcpus, workers, price]

        head = ["", "vCPUs per GPU", "of these for loading", "price per epoch"]
        return [head, row("separate loaders", self.separate), row("one shared loader", self.shared)]

    def _head(self) -> str:
        pace = rate(self.samples_per_s) + between(self.samples_interval, brackets=True)
        return (
            f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}, one trial each at {pace} samples/s, without "
            "waiting for data:"
        )

    def _below(self) -> str:
        known = self.separate.vcpus_interval is not None
        return f"{self.basis} In brackets: 80% interval." if known else self.basis

    def __repr__(self) -> str:
        return harmless("\n".join(filter(None, [self._head(), *text_table(self._rows()), self._below()])))

    def _repr_html_(self) -> str:
        return f"<p>{self._head()}</p>{html_table(self._rows())}<p><small>{escape(self._below())}</small></p>"


def _vcpus(number: float) -> str:
    return f"{number:.1f}"


def _price(price: float) -> str:
    return short_number(price)


def sized(
    own: Way,
    one: Way,
    gpus: int,
    samples: int | None,
    vcpu_price: float | None,
    gpu_price: float | None,
) -> Sizing:
    """Return what GPUs need so that no model waits.

    Args:
        own: A trial with a loader of its own.
        one: A trial on a shared one.
        gpus: How many there are.
        samples: In an epoch.
        vcpu_price: Of a vCPU for an hour.
        gpu_price: Of a GPU for an hour.

    Raises:
        ValueError: Fewer than one GPU, or a price below 0.
    """
    if gpus < 1 or any(price is not None and price < 0 for price in (vcpu_price, gpu_price)):
        raise ValueError(f"gpus={gpus!r} is invalid. Pass 1 GPU or more, and prices of 0 or more.")
    computing = own.computing or one.computing
    assert computing is not None  # `Stalls.sizing` has seen to it
    step_s = max(computing.wall_s, computing.device_s, 1e-12)

    def need(way: Way, trials: int) -> Need:
        loading = way.loading
        workers = loading.cpu_s / trials / step_s
        vcpus = workers + (loading.taking_s + computing.cpu_s) / step_s
        if samples is None or vcpu_price is None or gpu_price is None:
            return Need(vcpus, workers, None)
        return Need(vcpus, workers, samples * step_s / 3600 * (vcpus * vcpu_price + gpu_price))

    return Sizing(gpus, 1 / step_s, need(own, 1), need(one, gpus))
