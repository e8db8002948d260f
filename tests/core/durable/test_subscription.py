"""One durable subscription's record: which states follow each other, and what the disk has of them."""

import itertools
import re
from pathlib import Path

import pytest

from veena.core.boundary.stored import Disk, Identity
from veena.core.durable.cursor import Inbox
from veena.core.durable.subscription import FOLLOWING, Durable, State, restored


def durable_in(state: State) -> Durable:
    return Durable(7, "alice", "mine", "topic", "a", 1, 1, state, [Inbox(7, 0, 0)])


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, repeat=2)))
def test_a_state_follows_another_only_by_the_table(before: State, after: State) -> None:
    durable = durable_in(before)
    if after in FOLLOWING[before]:
        durable.become(after)
        assert durable.state is after
    else:
        with pytest.raises(AssertionError, match=f"was {before.value} and became {after.value}"):
            durable.become(after)
        assert durable.state is before


def test_the_documentation_has_the_same_table() -> None:
    """`docs/ARCHITECTURE.md` says which states there are, which may follow, and in which the broker keeps events."""
    text = (Path(__file__).parents[3] / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (yes|no) \| [^|]+ \| ([^|]+) \|$", text, re.M)
    told = {State(name): tuple(State(each) for each in re.findall(r"`(\w+)`", after)) for name, _, after in rows}
    assert told == FOLLOWING
    assert {State(name) for name, is_here, _ in rows if is_here == "yes"} == {
        state for state in State if durable_in(state).is_here
    }


def test_what_left_does_not_come_back() -> None:
    """It gets a new number where its client attaches again."""
    here = [state for state in State if durable_in(state).is_here]
    assert here == [State.HOME, State.OPEN, State.ARRIVING]
    assert not any(state in FOLLOWING[gone] for gone in (State.LEAVING, State.LEFT) for state in here)


@pytest.mark.parametrize("state", list(State))
def test_a_state_survives_a_restart(state: State) -> None:
    written = durable_in(state).registration()
    assert written.state == state.value
    assert restored(written, Disk(Identity("host", (0, 0), 1)), {}).state is state
