"""The producer: the one process that owns the loader, and decides who may have which batch."""

from tsnb.producer.serving import serve
from tsnb.producer.stream import Producer

__all__ = ["Producer", "serve"]
