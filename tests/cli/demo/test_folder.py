"""The folder of a demo: what a demo left that was killed goes, and nothing that is somebody else's or still in use."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread

import pytest

from tests.runtime.processes import until, veena
from veena.cli.demo.folder import demo_folder
from veena.errors import ConfigError

SMALL = Path(__file__).parents[3] / "networks" / "fix-4-unit.toml"
#: A demo that has its folder, and a broker of it that lives for a moment longer; both say so.
HOLDER = """
import sys, time
from pathlib import Path
from veena.cli.demo.folder import demo_folder
from veena.runtime.store.file import locked
out = Path(sys.argv[1])
if len(sys.argv) > 2:
    locked(out / "brokers" / "b1" / "store" / "veena.db")
    print("ready", flush=True)
    sys.stdin.read()
else:
    with demo_folder(out, ("brokers",), ("summary.json",), ("summary.json",)):
        (out / "brokers" / "b1" / "store").mkdir(parents=True)
        print("ready", flush=True)
        time.sleep(600)
"""


def held(*arguments: str) -> subprocess.Popen[str]:
    """A process that has something, once it says so."""
    command = [sys.executable, "-c", HOLDER, *arguments]
    made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None and made.stdout.readline() == "ready\n"
    return made


def taken(out: Path) -> AbstractContextManager[None]:
    return demo_folder(out, ("brokers",), ("summary.json",), ("summary.json",))


def test_what_a_killed_demo_left_goes_and_a_running_one_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with held(str(tmp_path)) as demo:
        with pytest.raises(ConfigError, match=f"in use by process {demo.pid}, a demo"), taken(tmp_path):
            pass
        demo.send_signal(signal.SIGKILL)
    (tmp_path / "brokers" / "rest").write_text("of the killed one")
    with taken(tmp_path):
        assert not (tmp_path / "brokers").exists()
        (tmp_path / "summary.json").write_text("{}")
        (tmp_path / "brokers").mkdir()
    (said,) = capsys.readouterr().err.splitlines()
    assert said == f"a demo that was killed left {tmp_path / 'brokers'}: begun anew"
    with taken(tmp_path):
        assert not (tmp_path / "brokers").exists() and not (tmp_path / "summary.json").exists()
    assert capsys.readouterr().err == "", "a demo that came to its end is no news"


def test_brokers_of_a_killed_demo_are_waited_for(tmp_path: Path) -> None:
    with held(str(tmp_path)) as demo, held(str(tmp_path), "broker") as broker:
        demo.send_signal(signal.SIGKILL)
        demo.wait()
        ending = Thread(target=broker.communicate)  # its standard input is closed
        ending.start()
        with taken(tmp_path):
            assert broker.wait() == 0
        ending.join()


def test_what_no_demo_left_stays(tmp_path: Path) -> None:
    (tmp_path / "brokers").mkdir()
    with pytest.raises(ConfigError, match="no demo left there"), taken(tmp_path):
        pass
    assert (tmp_path / "brokers").exists() and not (tmp_path / "demo.lock").exists()


@pytest.mark.slow
def test_the_demo_itself_begins_anew(tmp_path: Path) -> None:
    """`veena demo` is killed while its brokers run; the next one says so and starts its own."""
    words, out = tmp_path / "words", tmp_path / "demo"

    def stores() -> list[int]:
        return sorted(path.stat().st_ino for path in out.glob("brokers/*/store/veena.db"))

    arguments = ("demo", "--out", str(out), "--network", str(SMALL))
    with veena(*arguments, errors=words) as demo:
        until(lambda: len(stores()) == 6)
        before = stores()
        demo.end(signal.SIGKILL)
    with veena(*arguments, errors=words):
        until(lambda: len(stores()) == 6 and stores() != before)
    assert f"a demo that was killed left {out / 'brokers'}: begun anew" in words.read_text().splitlines()
