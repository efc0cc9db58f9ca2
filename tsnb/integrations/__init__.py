"""Adapters to other people's packages. Each module needs its package, and says so if it is missing."""

from __future__ import annotations
