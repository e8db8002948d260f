"""What operators do while 1,000 clients are attached: send them elsewhere, read the configuration again, revoke."""

from __future__ import annotations

from pathlib import Path

from veena.bench.steps.clients import subscribe, wait_for_clients
from veena.bench.steps.stage import Action, Stage
from veena.runtime.access.users import digest_of

CROWD = 1000


def with_users(folder: Path) -> str:
    """Settings of a broker with two users, and the file that names them."""
    write_users(folder, "")
    return f'[auth]\nusers_file = "{folder}/users.toml"\n'


def write_users(folder: Path, of_crowd: str) -> None:
    path = folder / "users.toml"
    entries = [
        f'[user.{name}]\ntokens = ["{digest_of(name)}"]\nroles = ["all"]\n{of_crowd if name == "crowd" else ""}'
        for name in ("crowd", "onlooker")
    ]
    path.write_text("\n".join([*entries, '[role.all]\nrules = [{ allow = "*" }]\n', ROLE_OF_NEWS]))
    path.chmod(0o600)


ROLE_OF_NEWS = '[role.news]\nrules = [{ allow = "subscribe", topic = "news" }]\n'


async def crowd(stage: Stage) -> None:
    """A thousand sessions of one user, with subscriptions."""
    peers = await stage.clients("crowd", CROWD)
    for peer in peers:
        peer.say(*(subscribe(number, "topic", topic) for number, topic in enumerate(("news", "sport", "weather"))))
    for peer in peers:
        await peer.quiet()


async def drain(stage: Stage) -> None:
    """All are sent elsewhere."""
    await crowd(stage)
    other = await stage.client("onlooker")
    async with stage.measured():
        await stage.tell("drain")
        for _ in range(20):
            await other.quiet()


async def reload(stage: Stage) -> None:
    """The configuration is read again, and nothing has changed; then the user may do less; then it is revoked."""
    await crowd(stage)
    other = await stage.client("onlooker")
    async with stage.measured():
        await stage.tell("reload")
        await other.quiet()
    write_users(stage.folder, "limits = { connections = 2000 }\n")
    async with stage.measured():
        await stage.tell("reload")
        await other.quiet()
    write_users(stage.folder, "revoked = true\n")
    async with stage.measured():
        await stage.tell("reload")
        await wait_for_clients(stage, 1)
        await other.quiet()


OPERATOR_ACTIONS: dict[str, Action] = {
    "1,000 clients are sent elsewhere": drain,
    "a reload, and a revocation, with 1,000 clients": reload,
}
