"""Fixtures that several tests of clients ask for."""

from __future__ import annotations

from tests.runtime.wording import wording

__all__ = ["wording"]
