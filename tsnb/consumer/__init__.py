"""The consumer: attach to a stream by name, and iterate it like a DataLoader."""

from tsnb.consumer.attaching import attach, consumers, detach_all, rest_all
from tsnb.consumer.consumer import Consumer
from tsnb.consumer.options import Stats

__all__ = ["Consumer", "Stats", "attach", "consumers", "detach_all", "rest_all"]
