"""Batches: what they may hold."""

from __future__ import annotations

from tsnb.wire.adapters import register

__all__ = ["register"]
