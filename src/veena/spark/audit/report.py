"""An audit as one HTML page: no script, no request to anywhere, readable in light and in dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

import veena
from veena.spark.audit.audit import NUMBERS, Audit, Violation

#: What each number means, for who reads the page.
_WORDS: Final = {
    "events": "events in the archive",
    "profiles": "subscriptions, each while it was at one broker",
    "expected": "pairs of a reliable event and a client that was promised it",
    "delivered": "of these, handed over or had by the client's own word",
    "missing": "of these, not handed over",
    "duplicates": "handed over once more than they should",
    "spurious": "handed to who had not asked for them",
    "wasted_units": "units entered in vain, those by digests included",
    "out_of_order": "handed over after a later event of their stream, without a mark",
    "deliveries": "deliveries on record, promised or not",
    "late": "marked as late",
    "redelivered": "marked as handed over before",
    "had": "promised, and had by the client's own word alone: its broker died with the record",
    "denied": "promised, and forbidden by a rule of access",
    "ended": "the subscription ended before the event came",
    "expired": "their time to live was over",
    "waiting": "kept for a durable subscription whose client is away, or on their way",
    "dropped": "lost by the rules for clients that do not read, and for subscriptions that cost too much",
    "unknown": "deliveries of events that are not in the archive",
    "digest_false_positives": "units that a digest let an event into",
    "astray": "units entered in vain that nothing explains",
    "records_lost": "records that brokers gave up: what is missing may have been delivered",
    "brokers_not_covered": 'brokers without records = "all"',
}

_STYLE: Final = """
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --soft: #667; --line: #dde; --good: #176a2e;
  --bad: #a31515; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14161a; --text: #e8e8ea; --soft: #9aa; --line: #333842; --good: #6fcf8b; --bad: #ff8a80; }
}
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem;
  text-align: left; vertical-align: top; overflow-wrap: anywhere; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
.wide { overflow-x: auto; }
"""


def html(result: Audit, archive: str) -> str:
    """The page."""
    numbers = {name: getattr(result, name) for name in (*NUMBERS, "out_of_order")} | dict(result.counts)
    verdict = (
        '<p class="good">Every promise was kept: nothing is missing, doubled, spurious or out of order.</p>'
        if result.is_clean
        else f'<p class="bad">{_count(result)} violations.</p>'
    )
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        f"<h1>Delivery audit</h1><p class='soft'>{escape(archive)} · {when} · Veena {escape(veena.__version__)}</p>",
        verdict,
        _numbers(numbers),
        _list("Violations", result.violations, _count(result)),
        _list("Tolerated", result.tolerated, result.wasted_units - result.counts["astray"]),
        _brokers(result),
    ]
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>Delivery audit</title>"
    return (
        f"<!doctype html><html lang='en'><head>{head}<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>"
    )


def _count(result: Audit) -> int:
    return result.missing + result.duplicates + result.spurious + result.out_of_order + result.counts["astray"]


def _numbers(numbers: dict[str, int]) -> str:
    bad = ("missing", "duplicates", "spurious", "out_of_order", "astray")
    rows = [
        f"<tr><td class='number{' bad' if name in bad and value else ''}'>{value:,}</td>"
        f"<td>{name.replace('_', ' ')}</td><td class='soft'>{_WORDS[name]}</td></tr>"
        for name, value in numbers.items()
    ]
    return f"<table>{''.join(rows)}</table>"


def _list(title: str, found: Sequence[Violation], total: int) -> str:
    if not found:
        return ""
    more = f"<p class='soft'>The first {len(found):,} of {total:,}.</p>" if total > len(found) else ""
    names = ("kind", "event", "client", "reason", "hop", "broker", "at")
    rows = [_row(getattr(each, name) or "" for name in names) for each in found]
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<h2>{title}</h2>{more}<div class='wide'><table><tr>{head}</tr>{''.join(rows)}</table></div>"


def _brokers(result: Audit) -> str:
    rows = [_row((name, kept or "not known")) for name, kept in sorted(result.brokers.items())]
    note = (
        "<p class='soft'>An audit says what was recorded. Brokers whose records are not “all” are not covered; of"
        " best-effort events only what <code>history</code> keeps is there.</p>"
    )
    return f"<h2>Coverage</h2>{note}<table><tr><th>broker</th><th>records</th></tr>{''.join(rows)}</table>"


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}</tr>"
