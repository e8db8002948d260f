"""The asyncio client. `veena.connect` is the way in; `veena.blocking` is the same without async."""

from __future__ import annotations

from veena.client.batch import Batch
from veena.client.client import Client, ClientStatistics, connect
from veena.client.explain import Explanation, TraceAnswer
from veena.client.pipeline import Pipeline
from veena.client.questions import Found, QueryAnswer, Watch
from veena.client.receipt import Receipt
from veena.client.subscription import Subscription

__all__ = [
    "Batch",
    "Client",
    "ClientStatistics",
    "Explanation",
    "Found",
    "Pipeline",
    "QueryAnswer",
    "Receipt",
    "Subscription",
    "TraceAnswer",
    "Watch",
    "connect",
]
