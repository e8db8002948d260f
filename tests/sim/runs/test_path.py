"""`tools/path.py` follows an event and a subscription through three brokers, whatever modules the core is made of."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "path.py"


def test_an_event_and_a_subscription_are_followed() -> None:
    """The figures change with the core; what they count does not."""
    done = subprocess.run([sys.executable, str(TOOL), "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert {way: part["steps"] for way, part in found.items()} == {
        "subscription": 3,
        "data": 4,
        "acknowledgements": 3,
        "data and acknowledgements": 7,
    }
    for part in found.values():
        assert part["calls"] > part["functions"] > part["modules"] >= part["rooms"] >= 1
        assert part["module_changes"] >= part["room_changes"]
    both = found["data and acknowledgements"]
    assert both["calls"] == found["data"]["calls"] + found["acknowledgements"]["calls"]
