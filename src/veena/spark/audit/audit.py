"""The audit: what was promised against what was delivered, from the archive of a network (design §6, §9; I1, I2).

    from veena.spark.audit.audit import audit
    result = audit(spark, "archive")
    result.missing, result.violations

    events, profile history --match--> what each client wanted (`facts`)
    with its deliveries     -------->  twice, spurious, out of order, promises not kept (`client`)
    with what brokers tell  -------->  missing, or why not (`verdict`)
    hops                    -------->  units entered in vain, and where an event went wrong (`hops`)

It covers what was recorded: brokers with `records = "all"`, events in the archive (`history`). What it rests on is
that a broker writes what it noted of an input in one transaction with what it keeps of it. So `kill -9` takes a
delivery from the records only if the broker forgets it too; then it is sent again, and its client says that it has had
it, which is on record as well. A power cut may take what the system had not written yet, of records and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812

from veena.errors import PipelineError
from veena.spark.audit import facts as audit_facts
from veena.spark.audit import hops as audit_hops
from veena.spark.audit import tables as audit_tables
from veena.spark.audit.client import FOREVER
from veena.spark.audit.facts import time_text
from veena.spark.audit.tables import INTERNAL, Tables
from veena.spark.audit.verdict import Verdict, copies_of, judged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: Violations of one kind that are listed with everything about them; the rest is counted.
DEFAULT_LIMIT: Final = 1000
MAX_LIMIT: Final = 100_000
#: What the numbers of an audit are called by those who read them (design §9), in this order.
NUMBERS: Final = ("events", "profiles", "expected", "delivered", "missing", "duplicates", "spurious", "wasted_units")


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be: which event, for whom, why, and the hop (`FROM>TO`) where it went wrong."""

    kind: str
    event: str
    client: str | None
    reason: str
    hop: str | None = None
    broker: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found."""

    events: int
    profiles: int
    expected: int
    delivered: int
    missing: int
    duplicates: int
    spurious: int
    wasted_units: int
    #: Handed over after a later event of its stream, without the mark `late`.
    out_of_order: int
    #: Further numbers, by name.
    counts: Mapping[str, int]
    violations: tuple[Violation, ...]
    #: Units that a digest, or a broker that had just come back, let an event into: counted, and no violation.
    tolerated: tuple[Violation, ...]
    #: Broker -> what it kept; those with less than everything are not covered.
    brokers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.duplicates or self.spurious or self.out_of_order or self.counts["astray"])

    def report(self) -> dict[str, Any]:
        """As JSON has it."""
        from dataclasses import asdict

        numbers = {name: getattr(self, name) for name in NUMBERS}
        return {
            **numbers,
            "out_of_order": self.out_of_order,
            **self.counts,
            "violations": [asdict(each) for each in self.violations],
            "tolerated": [asdict(each) for each in self.tolerated],
            "brokers": dict(self.brokers),
        }


def audit(spark: SparkSession, archive: str | Tables, *, settle_s: float = 0.0, limit: int = DEFAULT_LIMIT) -> Audit:
    """Audit an archive. Of events accepted in its last `settle_s` seconds nothing is said to be missing: they may be on
    their way. At most `limit` violations of a kind are listed."""
    if not 0 <= limit <= MAX_LIMIT:
        raise PipelineError(f"limit {limit}: list between 0 and {MAX_LIMIT} violations of a kind")
    if settle_s < 0:
        raise PipelineError(f"settle {settle_s}: expected seconds, not less than 0")
    tables = archive if isinstance(archive, Tables) else audit_tables.tables_of(spark, archive)
    return _Run(tables, settle_s, limit).result()


class _Run:
    """One audit; frames that are used more than once are kept until its end."""

    def __init__(self, tables: Tables, settle_s: float, limit: int) -> None:
        self._limit = limit
        self._settle_s = settle_s
        self._kept: list[DataFrame] = []
        self._tables = tables
        self._spark = tables.events.sparkSession
        self._lives = audit_tables.lives(tables)
        if not any(life.records for life in self._lives):
            raise PipelineError(
                'no profile history in the archive: set records = "all" under [store] of every broker, archive anew'
            )
        self._survey = audit_tables.survey(tables.events)

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return frame

    def result(self) -> Audit:
        try:
            return self._result()
        finally:
            for frame in self._kept:
                frame.unpersist()

    def _result(self) -> Audit:
        stays = self._keep(audit_tables.stays(self._tables.profiles, self._lives))
        matched = self._keep(audit_facts.matched_events(self._tables, stays, self._survey))
        sessions = audit_tables.sessions(self._tables.profiles, self._lives)
        facts = audit_facts.facts(self._tables, stays, matched, sessions)
        self._found = self._keep(audit_facts.findings(facts, self._survey.firsts))
        rows = self._found.groupBy("kind", F.expr("IF(kind = 'sum', reason, '') AS what")).agg(F.sum("n").alias("n"))
        sums = {(row["kind"], row["what"]): int(row["n"] or 0) for row in rows.collect()}
        total = {what: n for (kind, what), n in sums.items() if kind == "sum"}
        many = {kind: n for (kind, what), n in sums.items() if kind != "sum"}
        groups = self._groups(many.get("shared", 0))
        verdicts, missing = self._open(groups) if many.get("open") else ({}, [])
        unknown, strangers = self._strangers() if many.get("unmatched") else (0, [])
        wasted, digests, astray, tolerated = self._wasted(matched, stays)
        brokers = dict.fromkeys(self._survey.brokers, "") | {life.broker: life.records for life in self._lives}
        excused = sum(n for verdict, n in verdicts.items() if verdict not in (Verdict.MISSING.value, Verdict.HAD.value))
        promised = total.get("promised", 0) + total.get("group_promised", 0)
        expected, lost = promised - excused, verdicts.get(Verdict.MISSING.value, 0)
        counts = {
            "deliveries": total.get("handed", 0), "late": total.get("late", 0),
            "redelivered": total.get("redelivered", 0),
            **{each.value: verdicts.get(each.value, 0) for each in Verdict if each is not Verdict.MISSING},
            "unknown": unknown, "digest_false_positives": digests, "astray": astray[0],
            "records_lost": sum(life.lost for life in self._lives),
            "brokers_not_covered": sum(kept != "all" for kept in brokers.values()),
        }  # fmt: skip
        return Audit(
            self._survey.events,
            total.get("stays", 0),
            expected,
            expected - lost,
            lost,
            many.get("duplicate", 0) + sum(n - 1 for _, _, n in groups if n > 1),
            many.get("spurious", 0) + len(strangers),
            wasted,
            many.get("out_of_order", 0),
            counts,
            (*missing, *self._listed(many), *self._twice_shared(groups), *strangers[: self._limit], *astray[1]),
            tolerated,
            brokers,
        )

    # --- I1 ---

    def _listed(self, many: Mapping[str, int]) -> list[Violation]:
        """What was found client by client, as far as it is listed."""
        found: list[Violation] = []
        for kind in ("duplicate", "spurious", "out_of_order"):
            if many.get(kind):
                rows = self._found.where(F.col("kind") == kind).orderBy("event", "client").limit(self._limit)
                found += [_violation(row) for row in rows.collect()]
        return found

    def _groups(self, served: int) -> list[tuple[str, str, int]]:
        """(group, event, members that got it without a mark) of what groups got; there are few groups."""
        if not served:
            return []
        rows = self._found.where("kind = 'shared'").groupBy("client", "event").agg(F.sum("n").alias("n")).collect()
        return [(row["client"], row["event"], int(row["n"])) for row in rows]

    def _twice_shared(self, groups: list[tuple[str, str, int]]) -> list[Violation]:
        return [
            Violation("duplicate", event, group, f"handed to {n} members of the group")
            for group, event, n in groups
            if n > 1
        ][: self._limit]

    def _open(self, groups: list[tuple[str, str, int]]) -> tuple[dict[str, int], list[Violation]]:
        """How many promises were not kept, by verdict, and those that are missing."""
        waiting = self._found.where("kind = 'open'")
        if groups:
            served = self._spark.createDataFrame([each[:2] for each in groups], "client string, event string")
            waiting = waiting.join(F.broadcast(served), ["client", "event"], "left_anti")
        verdicts_of = self._keep(judged(waiting, self._tables, self._survey.firsts, self._until()))
        verdicts = {row["verdict"]: int(row["count"]) for row in verdicts_of.groupBy("verdict").count().collect()}
        if not verdicts.get(Verdict.MISSING.value):
            return verdicts, []
        lost = verdicts_of.where("verdict = 'missing'").orderBy("at", "event", "client").limit(self._limit).collect()
        events = [row["event"] for row in lost]
        copies = copies_of(events, self._tables, self._survey.firsts, self._addresses())
        found: list[Violation] = []
        for row in lost:
            hop, words = audit_hops.way(row["origin"], row["address"], copies.get(row["event"], ()), row["came"])
            found.append(Violation(
                "missing", row["event"], row["client"], f"{row['reason']}; {words}", hop, row["broker"],
                time_text(row["at"]),
            ))  # fmt: skip
        return verdicts, found

    def _until(self) -> int:
        """Events accepted after this are not waited for, in microseconds."""
        if not self._settle_s:
            return FOREVER
        frames = (self._tables.events, self._tables.deliveries, self._tables.hops, self._tables.profiles)
        ends = [frame.agg(F.expr("unix_micros(max(at)) AS at")) for frame in frames]
        last = reduce(lambda one, other: one.union(other), ends).agg(F.max("at").alias("at")).collect()[0]["at"]
        return int(last or 0) - round(self._settle_s * 1_000_000)

    def _addresses(self) -> dict[str, str | None]:
        return {life.broker: life.address for life in self._lives}

    def _strangers(self) -> tuple[int, list[Violation]]:
        """Deliveries that nothing of the client's matches: of events that are not in the archive, and the others.

        Replies go to who asked, whatever he wants.
        """
        rows = self._found.where("kind = 'unmatched'")
        events = self._tables.events.selectExpr(
            "id AS event", f"exists(coalesce(`to`, array()), who -> startswith(who, '{INTERNAL}')) AS is_reply"
        ).dropDuplicates(["event"])
        known = self._keep(rows.join(events, "event", "left"))
        unknown = known.where("is_reply IS NULL").count()
        is_whole = all(life.history == "all" for life in self._lives if life.records)
        wrong = known.where("is_reply IS NULL OR NOT is_reply" if is_whole else "NOT is_reply")
        found = [
            _violation(row, "spurious", NOT_THERE if row["is_reply"] is None else NOT_WANTED)
            for row in wrong.orderBy("event", "client").limit(MAX_LIMIT).collect()
        ]
        return (0 if is_whole else unknown), found

    # --- I2 ---

    def _wasted(
        self, matched: DataFrame, stays: DataFrame
    ) -> tuple[int, int, tuple[int, list[Violation]], tuple[Violation, ...]]:
        """Units entered in vain; of these those by digests; those that nothing explains; and the others."""
        outages = [
            (life.ended if life.ended is not None else life.next, life.next + audit_hops.UNHEARD_US)
            for life in self._lives
            if life.next is not None
        ]
        found = self._keep(audit_hops.wasted(self._tables, matched, stays, self._addresses(), outages))
        rows = found.groupBy("why").count().collect()
        many = {row["why"]: int(row["count"]) for row in rows}
        wasted, astray = sum(many.values()), many.get(audit_hops.ASTRAY, 0)
        listed: dict[bool, list[Violation]] = {True: [], False: []}
        for is_astray, condition in ((True, "why = '{}'"), (False, "why <> '{}'")):
            if astray if is_astray else wasted - astray:
                chosen = found.where(condition.format(audit_hops.ASTRAY)).orderBy("id", "unit").limit(self._limit)
                listed[is_astray] = [_entry(row) for row in chosen.collect()]
        return wasted, many.get(audit_hops.DIGEST, 0), (astray, listed[True]), tuple(listed[False])


NOT_WANTED: Final = "nothing that the client wanted matches the event"
NOT_THERE: Final = "no such event is in the archive"


def _violation(row: Row, kind: str | None = None, reason: str | None = None) -> Violation:
    return Violation(
        kind or row["kind"],
        row["event"],
        row["client"],
        reason or row["reason"],
        None,
        row["broker"],
        time_text(row["at"]),
    )


def _entry(row: Row) -> Violation:
    hop = f"{row['came_from'] or '?'}>{row['went_to']}"
    reason = f"unit {row['unit']} entered: {row['why']}"
    return Violation("wasted", row["id"], None, reason, hop, row["broker"], time_text(row["at"]))
