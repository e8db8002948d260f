"""What a running broker says of itself: the view that status, metrics and the locator's answers are made of."""

from __future__ import annotations

from dataclasses import dataclass

from veena.core.statistics import BrokerStatistics
from veena.runtime.broker.entrance import EntranceStatistics
from veena.runtime.broker.locator import LocatorStatistics
from veena.runtime.broker.renewal import RenewalStatistics
from veena.runtime.clients.service import ConversationStatistics
from veena.runtime.clients.staging import StagingStatistics
from veena.runtime.clients.table_service import LogStatistics
from veena.runtime.evaluation.worker import WorkerStatistics
from veena.runtime.links.end import EndStatistics
from veena.runtime.logging.audit import AuditStatistics
from veena.runtime.logging.logs import LineStatistics
from veena.runtime.steps import StepStatistics
from veena.runtime.store.store import StoreStatistics
from veena.runtime.supervision import SupervisionStatistics


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """Everything that a running broker can say of itself."""

    name: str
    label: str
    network: str
    urls: tuple[str, ...]
    uptime_s: float
    inputs: int
    broker: BrokerStatistics
    transports: tuple[EndStatistics, ...]
    clients: ConversationStatistics
    entrance: EntranceStatistics
    store: StoreStatistics
    version: str
    #: The address as people write it, and how much of events is remembered for who asks afterwards.
    address: str
    records: str
    pid: int
    memory_bytes: int
    locator: LocatorStatistics
    #: What readers outside get of the store's tables.
    tables: LogStatistics
    #: Batches that clients stage and publish as a whole.
    staging: StagingStatistics
    #: What it has written to its log.
    lines: LineStatistics
    audit: AuditStatistics
    #: Its threads and tasks.
    supervision: SupervisionStatistics
    #: Its core, made anew after exceptions that nobody foresaw.
    renewal: RenewalStatistics
    #: The process that evaluates what costs too much for the loop.
    worker: WorkerStatistics
    #: How long the steps of its event loop take.
    loop: StepStatistics
