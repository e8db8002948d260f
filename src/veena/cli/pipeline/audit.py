"""`veena pipeline audit`: was every event delivered, once, in order, to whom it was promised, and nowhere else?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veena.cli.pipeline.group import JsonOption, MasterOption, MemoryOption, UiPortOption, check_there

if TYPE_CHECKING:
    from veena.spark.audit.audit import Audit

#: Violations that are shown on the screen.
SHOWN = 20


def audit(
    archive: Annotated[Path, typer.Option("--archive", help="The directory of the archive.")],
    html: Annotated[Path | None, typer.Option("--html", help="Write a report as one HTML page.")] = None,
    settle: Annotated[
        float, typer.Option(help="Of events accepted in the archive's last seconds nothing is missing yet.", min=0.0)
    ] = 0.0,
    limit: Annotated[int, typer.Option(help="How many violations of a kind are listed.", min=0)] = 1000,
    master: MasterOption = "local[*]",
    memory: MemoryOption = None,
    ui_port: UiPortOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare what was promised with what was delivered; exit code 1 when there are violations."""
    from veena.spark.audit.audit import audit as judge
    from veena.spark.audit.report import html as page
    from veena.spark.launch.progress import watch
    from veena.spark.launch.session import session

    check_there(archive)  # what is wrong is said before Spark starts, and not after it has worked
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
    spark = session(master, "veena-audit", memory=memory, ui_port=ui_port)
    with watch(spark, f"auditing {archive}"):
        result = judge(spark, str(archive), settle_s=settle, limit=limit)
    if html is not None:
        html.write_text(page(result, str(archive)), encoding="utf-8")
    if as_json:
        print(json.dumps(result.report()))
    else:
        _show(result, html)
    if not result.is_clean:
        raise typer.Exit(1)


def _show(result: Audit, html: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from veena.spark.audit.audit import NUMBERS

    console = Console()
    table = Table("", "", show_header=False)
    for name in (*NUMBERS, "out_of_order"):
        table.add_row(name.replace("_", " "), f"{getattr(result, name):,}")
    for name, value in result.counts.items():
        if value:
            table.add_row(name.replace("_", " "), f"{value:,}", style="dim")
    console.print(table)
    for each in result.violations[:SHOWN]:
        where = "" if each.client is None else f" to {each.client}"
        console.print(f"{each.kind}: {each.event}{where}: {each.reason}", soft_wrap=True, markup=False)
    if len(result.violations) > SHOWN:
        console.print(f"... and {len(result.violations) - SHOWN} more: use --json or --html")
    if html is not None:
        console.print(f"report: {html}", markup=False)


def register(group: typer.Typer) -> None:
    group.command()(audit)
