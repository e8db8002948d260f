"""docs/SECURITY.md: every proof that it names is there, and every attack that it says to be impossible has one."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "SECURITY.md"


def test_every_attack_that_is_impossible_has_a_proof_that_exists() -> None:
    rows = [
        line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| cannot")
    ]
    assert len(rows) >= 20
    for _, attack, proof in rows:
        files = re.findall(r"`([\w/]+\.py)`", proof)
        assert files, f"no test for: {attack}"
        room = TESTS / Path(files[0]).parent
        for name in files:
            path = TESTS / name if "/" in name else room / name
            assert "def test_" in path.read_text(encoding="utf-8"), path
