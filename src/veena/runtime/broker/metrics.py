"""A broker's statistics as Prometheus metrics: a table of names and where each value comes from.

Counters are the broker's own and never sums over connections, which would fall when one of them goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from veena.address import format_address
from veena.core.links.link import LinkState
from veena.runtime.broker.statistics import NodeStatistics
from veena.runtime.clients.table_service import ReaderStatistics

Value = Callable[[NodeStatistics], float]


def _open_links(statistics: NodeStatistics) -> int:
    return sum(link.state is LinkState.OPEN for link in statistics.broker.links)


def _of_units(statistics: NodeStatistics) -> int:
    return max(statistics.broker.profiles.climbing[1:], default=0)


COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("veena_inputs", "Inputs that the broker has handled.", lambda s: s.inputs),
    ("veena_events_accepted", "Events accepted from publishers here.", lambda s: s.broker.origin.accepted),
    ("veena_events_refused", "Events refused to publishers here.", lambda s: s.broker.origin.refused),
    ("veena_events_delivered", "Events handed to clients here.", lambda s: s.broker.ends.delivered),
    ("veena_events_late", "Events handed over out of their order.", lambda s: s.broker.ends.late),
    ("veena_events_repeated", "Events that clients here had before.", lambda s: s.broker.ends.repeated),
    ("veena_dead_letters", "Accepted events that outlived their retention.", lambda s: s.broker.origin.dead_letters),
    ("veena_second_copies_given_up", "Events for the absent left on one disk.", lambda s: s.broker.copies.given_up),
    ("veena_copies_received", "Copies of events that came over links.", lambda s: s.broker.router.copies_in),
    ("veena_copies_sent", "Copies of events sent over links.", lambda s: s.broker.router.copies_out),
    ("veena_copies_sent_again", "Copies sent again after a change.", lambda s: s.broker.router.sent_again),
    ("veena_copies_in_vain", "Copies that nobody here wanted.", lambda s: s.broker.router.in_vain),
    ("veena_copies_dropped", "Best-effort copies dropped for want of room.", lambda s: s.broker.router.dropped),
    ("veena_copies_expired", "Copies whose time to live was over.", lambda s: s.broker.router.expired),
    ("veena_client_events_dropped", "Events that slow clients missed.", lambda s: s.broker.outlet.dropped),
    ("veena_events_withheld", "Events that rules of access kept from clients.", lambda s: s.clients.withheld),
    ("veena_events_passed_over", "Those that durable subscriptions passed over.", lambda s: s.broker.durables.denied),
    ("veena_events_missed", "Events not kept for suspended subscriptions.", lambda s: s.broker.durables.missed),
    ("veena_events_handed_back", "Those that groups took back.", lambda s: s.broker.durables.handed_back),
    ("veena_clients_attached", "Clients that were let in.", lambda s: s.clients.attached),
    ("veena_clients_refused", "Clients that were not let in.", lambda s: s.clients.refused),
    ("veena_logins_wrong", "Wrong passwords and tokens.", lambda s: s.clients.log_ins.wrong),
    ("veena_logins_slowed", "Log-ins refused unread after wrong ones.", lambda s: s.clients.log_ins.slowed),
    ("veena_clients_moved", "Clients sent to brokers with room.", lambda s: s.locator.moved),
    ("veena_users_slowed_events", "Reads that waited for a user's rate of events.", lambda s: s.clients.slowed_events),
    ("veena_users_slowed_bytes", "Reads that waited for a user's rate of bytes.", lambda s: s.clients.slowed_bytes),
    ("veena_users_slowed_control", "Reads that waited for its rate of control.", lambda s: s.clients.slowed_control),
    ("veena_subscriptions_over_quota", "Subscriptions that a quota refused.", lambda s: s.broker.profiles.over_quota),
    ("veena_interest_lies", "What others said in this broker's name.", lambda s: s.broker.profiles.lies),
    ("veena_signatures_made", "Signatures of statements for other units.", lambda s: s.broker.signatures.made),
    ("veena_signatures_checked", "Signatures of other units' statements.", lambda s: s.broker.signatures.checked),
    ("veena_statements_refused", "Statements refused for their signature.", lambda s: s.broker.signatures.refused),
    ("veena_clock_early_frames", "Frames from ahead of this clock.", lambda s: s.broker.profiles.early),
    ("veena_connections_accepted", "Connections whose first frame was right.", lambda s: s.entrance.accepted),
    ("veena_connections_refused", "Connections that were turned away.", lambda s: s.entrance.refused),
    ("veena_descriptor_shortages", "Times no descriptor was left for a connection.", lambda s: s.entrance.shortages),
    ("veena_log_lines", "Lines that the broker has written to its log.", lambda s: s.lines.written),
    ("veena_log_lines_left_out", "Occurrences that had no line of their own.", lambda s: s.lines.left_out),
    ("veena_audit_lines", "Lines that are in the audit log.", lambda s: s.audit.written),
    ("veena_audit_lines_lost", "Lines lost because nothing could be written.", lambda s: s.audit.lost),
    ("veena_parts_ended", "Threads and tasks that an exception ended.", lambda s: s.supervision.ended),
    ("veena_parts_started_again", "Those that were started again.", lambda s: s.supervision.started_again),
    ("veena_unforeseen_failures", "Pieces of work that an exception ended.", lambda s: s.supervision.failed),
    ("veena_core_renewals", "Times the core was made anew.", lambda s: s.renewal.renewed),
    ("veena_quarantined_frames", "Frames put into the quarantine.", lambda s: s.renewal.quarantined),
    ("veena_evaluations", "Evaluations made outside of the loop.", lambda s: s.broker.evaluations.made),
    ("veena_evaluations_failed", "Those that a worker did not end.", lambda s: s.broker.evaluations.failed),
    ("veena_evaluation_work", "Work that was spent on them.", lambda s: s.broker.evaluations.work),
    ("veena_subscriptions_suspended", "Suspended for their cost.", lambda s: s.broker.evaluations.suspended),
    ("veena_events_missed_suspended", "Events that those missed.", lambda s: s.broker.held.missed),
    ("veena_evaluation_worker_restarts", "Times its process was started anew.", lambda s: s.worker.restarts),
    ("veena_loop_steps_over_limit", "Steps of the event loop above 50 ms of CPU time.", lambda s: s.loop.over_limit),
    ("veena_store_writes", "Tickets that the disk has taken.", lambda s: s.store.stored),
    ("veena_store_writes_failed", "Tickets that the disk has refused.", lambda s: s.store.failed),
    ("veena_store_commits", "Synced commits.", lambda s: s.store.commits),
    ("veena_store_reads", "Reads of the log.", lambda s: s.store.reads),
    ("veena_staged_rows", "Rows that were staged for batches.", lambda s: s.staging.staged_rows),
    ("veena_staged_batches", "Batches that were published as a whole.", lambda s: s.staging.published),
    ("veena_staged_batches_repeated", "Batches that came again, in vain.", lambda s: s.staging.repeated),
    ("veena_staged_expired", "Parts that nobody published in time.", lambda s: s.staging.expired),
    ("veena_readers_gaps", "Reads from outside that came too late for rows.", lambda s: s.tables.gaps),
)
GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("veena_uptime_seconds", "Since this process was started.", lambda s: s.uptime_s),
    ("veena_clients", "Clients attached.", lambda s: s.clients.clients),
    ("veena_logins_waiting", "Passwords that wait to be checked.", lambda s: s.clients.log_ins.waiting),
    ("veena_load", "What this broker has to do; 1 is all that it serves well.", lambda s: s.locator.load),
    ("veena_connections", "Connections that others have made.", lambda s: s.entrance.connections),
    ("veena_connections_unidentified", "Those that have not said who they are.", lambda s: s.entrance.unidentified),
    ("veena_unidentified_bytes", "What those have this broker hold.", lambda s: s.entrance.unidentified_bytes),
    ("veena_subscriptions", "Subscriptions of clients here.", lambda s: s.broker.profiles.subscriptions),
    ("veena_durable_subscriptions", "Durable subscriptions kept here.", lambda s: s.broker.durables.durables),
    ("veena_durables_suspended", "Those for which no more is kept.", lambda s: s.broker.durables.suspended),
    ("veena_kept_bytes", "Bytes kept that those have not read.", lambda s: s.broker.durables.kept_bytes),
    ("veena_group_events_parked", "Events no member may read.", lambda s: s.broker.durables.parked),
    ("veena_constraints_told", "Distinct constraints told of this broker.", lambda s: s.broker.profiles.climbing[0]),
    ("veena_unit_constraints_told", "The same of its cluster or super-cluster, of which more are told.", _of_units),
    ("veena_units_reachable", "Units in this broker's map.", lambda s: s.broker.vertices),
    ("veena_links_open", "Links that are in use.", _open_links),
    ("veena_events_open", "Accepted events that are not delivered yet.", lambda s: s.broker.origin.open),
    ("veena_second_copies_waited_for", "Events that wait for a second disk.", lambda s: s.broker.copies.waiting),
    ("veena_second_copies_held", "Events whose second copy others hold.", lambda s: s.broker.copies.held),
    ("veena_second_copies_kept", "Second copies kept here for others.", lambda s: s.broker.copies.kept),
    ("veena_second_copies_kept_bytes", "Their bytes.", lambda s: s.broker.copies.kept_bytes),
    ("veena_client_events_waiting", "Events that wait for slow clients.", lambda s: s.broker.outlet.waiting),
    ("veena_evaluations_waiting", "Evaluations asked for.", lambda s: s.broker.evaluations.waiting),
    ("veena_events_held", "Events that wait for evaluations.", lambda s: s.broker.held.events),
    ("veena_events_held_bytes", "Their bytes.", lambda s: s.broker.held.bytes),
    ("veena_readers_open", "Reads from outside that are open.", lambda s: s.tables.reads),
    ("veena_staged_bytes", "Bytes staged for batches.", lambda s: s.staging.bytes),
    ("veena_staged_releasing", "Parts that are published, not logged yet.", lambda s: s.staging.releasing),
    ("veena_audit_trouble", "1 while the audit log cannot be written.", lambda s: s.audit.trouble is not None),
    ("veena_store_waiting", "Tickets that wait for the disk.", lambda s: s.store.waiting),
    ("veena_store_bytes", "Bytes of the store in use.", lambda s: s.store.used_bytes),
    ("veena_store_bytes_max", "Bytes that the store may use.", lambda s: s.store.max_bytes),
    ("veena_loop_longest_seconds", "CPU time of its longest step of late.", lambda s: s.loop.longest_s),
    ("veena_loop_longest_ever_seconds", "The same since the start.", lambda s: s.loop.longest_ever_s),
    ("veena_parts_trouble", "1 while a thread or task does not run.", lambda s: s.supervision.trouble is not None),
    ("veena_senders_refused", "Senders refused for such frames.", lambda s: s.renewal.refused_senders),
    ("veena_store_trouble", "1 while the disk does not do what it should.", lambda s: s.store.trouble is not None),
)
#: What each reader outside got.
READERS: tuple[tuple[str, str, Callable[[ReaderStatistics], float]], ...] = (
    ("veena_reader_rows_looked_at", "Rows that a reader's questions led to.", lambda r: r.rows_looked),
    ("veena_reader_rows_sent", "Rows that a reader was sent.", lambda r: r.rows_sent),
    ("veena_reader_bytes_sent", "Bytes of blocks that a reader was sent.", lambda r: r.bytes_sent),
)


def exposition(statistics: NodeStatistics) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(statistics))
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, statistics: NodeStatistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        found = self._statistics
        identity = {
            "name": found.name,
            "address": format_address(found.broker.address),
            "network": found.network,
            "incarnation": str(found.broker.incarnation),
        }
        yield InfoMetricFamily("veena_broker", "Who this broker is.", value=identity)
        for name, text, value in COUNTERS:
            yield CounterMetricFamily(name, text, value=value(found))
        for name, text, value in GAUGES:
            yield GaugeMetricFamily(name, text, value=value(found))
        yield from self._links()
        yield from self._readers()

    def _readers(self) -> Iterable[Metric]:
        """By reader: the first part of its client id, of which there are few."""
        for name, text, value in READERS:
            family = CounterMetricFamily(name, text, labels=["reader"])
            for reader, found in self._statistics.tables.readers.items():
                family.add_metric([reader], value(found))
            yield family

    def _links(self) -> Iterable[Metric]:
        """By neighbour, which stays the same when a link is dialled again."""
        neighbours = {
            link.link: format_address(link.neighbour)
            for link in self._statistics.broker.links
            if link.neighbour is not None
        }
        load = GaugeMetricFamily("veena_link_load_ratio", "How full the way out is.", labels=["neighbour"])
        waiting = GaugeMetricFamily("veena_link_waiting_bytes", "Bytes that wait to be sent.", labels=["neighbour"])
        for end in self._statistics.transports:
            if end.link in neighbours:
                load.add_metric([neighbours[end.link]], end.utilisation)
                waiting.add_metric([neighbours[end.link]], end.waiting)
        yield load
        yield waiting
