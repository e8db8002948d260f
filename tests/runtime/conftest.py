"""Fixtures that several tests of brokers in this process ask for."""

from __future__ import annotations

from tests.runtime.wording import wording

__all__ = ["wording"]
