"""What the shell completes: sub-commands, TOML files, the brokers of a network file; in bash, zsh and fish."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from veena.cli.completion import toml_files

ROOT = Path(__file__).parents[2]


def completed(shell: str, line: str) -> str:
    """What `veena` answers when this shell asks how a line could go on."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_VEENA_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    program = "import sys; sys.argv = ['veena']; from veena.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_sub_commands_are_completed(shell: str) -> None:
    told = completed(shell, "veena ")
    assert all(word in told for word in ("broker", "network", "pub", "sub", "locate", "topology"))


def test_files_and_brokers_are_completed() -> None:
    assert completed("bash", "veena broker r").split() == ["run"]
    assert completed("fish", "veena network up networks/fix-5").split() == [
        "networks/fix-5-joined.toml",
        "networks/fix-5.toml",
    ]
    told = completed("bash", "veena topology show networks/fix-5.toml --at SSC-A.SC-1.c").split()
    assert "SSC-A.SC-1.c.6" in told and all(label.startswith("SSC-A.SC-1.c") for label in told)
    assert completed("bash", "veena topology show nowhere.toml --at SSC").split() == []


def test_only_what_leads_to_a_toml_file_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.toml", "b.txt", ".hidden.toml", "sub/c.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert toml_files("") == ["a.toml", "sub/"] and toml_files("sub/") == ["sub/c.toml"]
    assert toml_files(".h") == [".hidden.toml"] and toml_files("b") == [] and toml_files("nowhere/") == []
    assert toml_files(f"{tmp_path}/a") == [f"{tmp_path}/a.toml"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_the_shell_is_shown(shell: str) -> None:
    """What `veena --install-completion` writes down."""
    environment = {**os.environ, "_VEENA_COMPLETE": f"source_{shell}"}
    program = "import sys; sys.argv = ['veena']; from veena.cli import main; main()"
    shown = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True, timeout=60)
    assert "_VEENA_COMPLETE=complete_" in shown and "veena" in shown
