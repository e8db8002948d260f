"""`veena demo collaboratory`: two domains, three users, one simulation; what the thesis promises, seen happening."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veena.cli.demo.folder import demo_folder
from veena.errors import VeenaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from veena.cli.demo.collaboratory_site import Site
    from veena.cli.demo.collaboratory_story import Story

SUMMARY, PICTURE, BROKERS = "summary.json", "field.png", "brokers"


def collaboratory(
    once: Annotated[
        bool, typer.Option("--once/--stay", help="End after the story, or leave all running until Ctrl-C.")
    ] = True,
    out: Annotated[Path, typer.Option("--out", help="The folder for what is left.")] = Path("out/collaboratory"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Two domains, three users, one simulation: found, watched, steered, discussed; each point checked."""
    from rich.console import Console

    status = Console(stderr=True).status("starting")
    ended: list[Story] = []

    def end(site: Site, story: Story) -> None:
        status.stop()
        ended.append(story)
        _report(story, out, as_json)
        if not once:
            _invite(site)

    folder = demo_folder(out, (BROKERS,), (SUMMARY, PICTURE), (f"{BROKERS}/users-L.toml",))
    with folder, status, suppress(KeyboardInterrupt):  # the usual end of --stay
        asyncio.run(_run(out / BROKERS, status.update, end, once))
    if not ended or not ended[0].is_good:
        raise typer.Exit(1)


def _report(story: Story, out: Path, as_json: bool) -> None:
    found = summary(story)
    (out / SUMMARY).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if story.before is not None and story.after is not None:
        draw(story, out / PICTURE)
    if as_json:
        typer.echo(json.dumps(found))
    else:
        show(story, out)


async def _run(
    directory: Path, say: Callable[[str], None], end: Callable[[Site, Story], None], once: bool = True
) -> None:
    """The story; `end` is called with it while everything still runs."""
    from veena.cli.demo.collaboratory_site import Simulation, Site
    from veena.cli.demo.collaboratory_story import Teller

    async with Site(directory, say) as site:
        simulation = Simulation([site.url("R.a.1"), site.url("R.a.2")], site.token("heat"))
        simulation.start()
        try:
            await asyncio.to_thread(simulation.is_ready.wait)
            teller = Teller(site, simulation, say)
            try:
                story = await teller.tell()
            except (VeenaError, TimeoutError) as error:
                story = teller.story
                story.note("the story comes to its end", "", False, f"{type(error).__name__}: {error}")
            end(site, story)
            if not once:
                await asyncio.Event().wait()
        finally:
            await simulation.end()


def _invite(site: Site) -> None:
    """Where to look, while everything goes on."""
    for user, broker in (("jim", "L.a.1"), ("alice", "L.a.2"), ("bob", "R.a.2")):
        typer.echo(f"{user}: {site.url(broker)} token {site.token(user)}")
    typer.echo("Ctrl-C ends it")


def summary(story: Story) -> dict[str, Any]:
    return {
        "ok": story.is_good,
        "points": [
            {"what": each.what, "requirement": each.requirement, "ok": each.is_met, "found": each.found}
            for each in story.points
        ],
        **story.numbers,
    }


def show(story: Story, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title="two domains, three users, one simulation", show_lines=True)
    for head in ("point", "requirement", "found", ""):
        table.add_column(head)
    for each in story.points:
        table.add_row(each.what, each.requirement, each.found, "[green]OK" if each.is_met else "[red]failed")
    console.print(table)
    met = sum(each.is_met for each in story.points)
    console.print(f"{met} of {len(story.points)} points hold; left in {out}: {SUMMARY}, {PICTURE}", highlight=False)


def draw(story: Story, path: Path) -> None:
    """The field before and after it was steered, with one scale."""
    from matplotlib.figure import Figure

    assert story.before is not None and story.after is not None
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    high = max(float(story.before.max()), float(story.after.max()))
    for each, title, place in ((story.before, "before", axes[0]), (story.after, "after alice steered", axes[1])):
        image = place.imshow(each, vmin=0, vmax=high, cmap="inferno")
        place.set_title(title)
        place.set_xticks([])
        place.set_yticks([])
    figure.colorbar(image, ax=list(axes), label="°C")
    figure.savefig(path, dpi=120)
