"""The secret of a cluster on this machine: its user's sessions find it, and nothing that others may have put there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from veena.errors import PipelineError
from veena.spark.launch.cluster_secret import ClusterSecret, find_secret, shown_to

MASTER = "spark://127.0.0.1:7077"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories of a user, who writes files as most do."""
    for name in ("cache", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    return tmp_path


def test_sessions_at_the_master_find_it_until_the_cluster_ends() -> None:
    before = os.umask(0o022)
    try:
        made, other = ClusterSecret(), ClusterSecret()
    finally:
        os.umask(before)
    assert find_secret(MASTER) is None, "it is not up yet"
    made.is_for(MASTER)
    other.is_for("spark://127.0.0.1:70770")
    assert find_secret(MASTER) == made.path
    assert find_secret("local[2]") is None and find_secret("spark://127.0.0.1:707") is None
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(made.path.parent.stat().st_mode) == 0o700
    secrets = [line for each in (made, other) for line in each.path.read_text().splitlines() if "secret " in line]
    assert len(set(secrets)) == 2 and all(len(line.split()[1]) == 64 for line in secrets)
    made.forget()
    assert find_secret(MASTER) is None


def test_the_driver_is_told_where_it_is_and_not_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ClusterSecret()
    made.is_for(MASTER)
    with shown_to(MASTER):
        told = os.environ["PYSPARK_SUBMIT_ARGS"]
        assert told == f"--properties-file {made.path} --load-spark-defaults pyspark-shell"
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars x.jar pyspark-shell")
    with shown_to(MASTER):
        assert os.environ["PYSPARK_SUBMIT_ARGS"].endswith("--load-spark-defaults --jars x.jar pyspark-shell")
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--jars x.jar pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file mine pyspark-shell")
    for master in (MASTER, "local[2]"):
        with shown_to(master):
            assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--properties-file mine pyspark-shell"


def test_what_others_can_write_or_read_counts_for_nothing() -> None:
    """SEC: another user puts a file there with a secret of his own, so that a session trusts his master."""
    made = ClusterSecret()
    made.is_for(MASTER)
    made.path.chmod(0o644)
    assert find_secret(MASTER) is None
    made.path.chmod(0o600)
    made.path.parent.chmod(0o777)
    assert find_secret(MASTER) is None
    made.path.parent.chmod(0o700)
    assert find_secret(MASTER) == made.path


def test_what_a_killed_cluster_left_is_taken_away() -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    made = ClusterSecret()
    made.is_for(MASTER)
    made.path.write_text(made.path.read_text().replace(str(os.getpid()), ended.stdout.decode().strip()))
    assert find_secret(MASTER) is None and not made.path.exists()


def test_without_a_home_it_stands_in_the_directory_for_temporary_files(home: Path) -> None:
    (home / "cache").rmdir()
    (home / "cache").write_text("no directory")
    made = ClusterSecret()
    made.is_for(MASTER)
    assert made.path.parent == home / "tmp" / f"veena-clusters-{os.getuid()}" and find_secret(MASTER) == made.path
    made.path.parent.chmod(0o777)  # somebody else was there first
    with pytest.raises(PipelineError, match="XDG_CACHE_HOME"):
        ClusterSecret()
