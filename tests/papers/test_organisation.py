"""The worked examples of the node organisation protocol (the GES paper, section 3.1), on FIX-4."""

from __future__ import annotations

import pytest

from tests.core.membership.organisation_world import FIX_4, fix_4, place
from veena.address import Labels, link_level
from veena.core.boundary.settings import ConnectionRules
from veena.core.membership.join import Applicant
from veena.core.membership.protocol import decode_request, encode_request
from veena.core.wire.membership import (
    SetupAccepted,
    SetupRedirected,
    SetupRefused,
    SetupRequest,
    SlotReply,
    SlotRequest,
)
from veena.errors import InvalidAddress

#: In FIX-4 each broker of n has two level-0 links; 19 one of level 2, 20 one of level 1.
FULL_AT_0 = ConnectionRules((2, 4, 2, 2))
FULL_AT_1 = ConnectionRules((8, 0, 2, 2))
FIRST_FREE = 3


def test_nop_06_both_printed_vectors() -> None:
    """NOP-06, AMB-4: the rightmost bit is level 0 and means from."""
    member = decode_request("00000011")
    assert (member.is_from, member.levels) == (True, (0, 1))
    outside = decode_request("00000110")
    assert (outside.is_from, outside.levels) == (False, (1, 2))
    assert encode_request((0, 1)) == 0b11 and encode_request((1, 2)) == 0b110


def test_nop_03_the_address_is_relative_to_the_contact() -> None:
    """NOP-03: s joins through n.21 at level 0 and becomes SSC-B.SC-6.n.<new>."""
    world, labels, at = fix_4()
    s = world.join(at[21], (0,))
    world.run()
    assert world.joined(s).address == (*labels.unit("SSC-B.SC-6.n"), FIRST_FREE)


def test_nop_07_member_of_n_and_cluster_gatekeeper_to_m() -> None:
    """NOP-07: <00000011>: a level-0 link in n and a level-1 link to another cluster of SC-6, which is m."""
    world, labels, at = fix_4()
    s = world.join(at[21], (0, 1))
    world.run()
    joined = world.joined(s)
    assert joined.address[:-1] == labels.unit("SSC-B.SC-6.n")
    member, gateway = joined.links
    assert (member.level, member.place) == (0, place(at[21]))
    assert (gateway.level, gateway.place.address[:-1]) == (1, labels.unit("SSC-B.SC-6.m"))
    assert world.neighbours(joined.address) == [at[21], at[17]]


def test_nop_08_level_2_gateway_to_sc_6_from_sc_4_or_sc_5() -> None:
    """NOP-08, NOP-09: <00000110>: s lands in SC-4 or SC-5, with level-2 link to SC-6 and level-1 link in its own SC."""
    world, labels, at = fix_4()
    s = world.join(at[21], (1, 2))
    world.run()
    joined = world.joined(s)
    assert joined.address[:2] in (labels.unit("SSC-B.SC-4"), labels.unit("SSC-B.SC-5"))
    by_level = {grant.level: grant.place.address for grant in joined.links}
    assert sorted(by_level) == [0, 1, 2]
    assert by_level[2] == at[21]
    assert by_level[1][:2] == joined.address[:2] and by_level[1][:3] != joined.address[:3]
    assert by_level[0][:3] == joined.address[:3]
    assert link_level(joined.address, at[21]) == 2, "the highest set bit is where the addresses differ"


@pytest.mark.parametrize("levels", [(0,), (0, 1), (1,), (2,), (1, 2)])
def test_nop_09_the_highest_differing_level(levels: tuple[int, ...]) -> None:
    """NOP-09, AMB-6: from shares the cluster; to differs from the highest bit downwards and shares all above."""
    world, _, at = fix_4()
    s = world.join(at[21], levels)
    world.run()
    expected = 0 if 0 in levels else max(levels)
    assert link_level(world.joined(s).address, at[21]) == expected


def test_nop_10_first_branch_the_contact_has_room() -> None:
    """NOP-10 (1): one question, one answer, nobody else hears of it."""
    world, _, at = fix_4()
    s = world.join(at[19], (0,))
    world.run()
    assert [type(frame) for _, frame in world.log] == [SetupRequest, SetupAccepted]
    assert world.joined(s).links[0].place == place(at[19])


def test_nop_10_second_branch_a_mate_has_room() -> None:
    """NOP-10 (2): 21 is full, 19 as well, so 20 takes s; each was asked by a message."""
    world, _, at = fix_4({19: FULL_AT_0, 21: FULL_AT_0})
    s = world.join(at[21], (0,))
    world.run()
    assert [to for to, _ in world.frames(SlotRequest)] == [at[19], at[20]]
    assert [frame.granted for _, frame in world.frames(SlotReply) if isinstance(frame, SlotReply)] == [False, True]
    assert world.joined(s).links[0].place == place(at[20])
    assert world.joined(s).address[:-1] == at[21][:-1]


def test_nop_10_third_branch_all_are_full() -> None:
    """NOP-10 (3): the answer lists the level-1 gatekeepers connected to n, and s repeats there: it lands in m."""
    world, labels, at = fix_4({19: FULL_AT_0, 20: FULL_AT_0, 21: FULL_AT_0})
    s = world.join(at[21], (0,))
    world.run()
    (redirect,) = [frame for _, frame in world.log if isinstance(frame, SetupRedirected)]
    level_1 = [there for there in redirect.gatekeepers if link_level(at[21], there.address) == 1]
    assert level_1 == [place(at[17])] and redirect.gatekeepers[0] == place(at[17])
    assert [to for to, _ in world.frames(SetupRequest)] == [at[21], at[17]]
    assert world.joined(s).address[:-1] == labels.unit("SSC-B.SC-6.m")


def test_nop_12_all_full_at_level_1_fails() -> None:
    """NOP-12: no broker of n may have one more level-1 gateway."""
    world, _, at = fix_4(dict.fromkeys(FIX_4["SSC-B.SC-6.n"], FULL_AT_1))
    s = world.join(at[21], (1,))
    world.run()
    assert "no broker of this cluster has a level-1 gateway free" in world.refusal(s)
    assert len(world.frames(SetupRefused)) == 1 and not world.frames(SetupAccepted)


def test_nop_12_m_accepts() -> None:
    """NOP-12: s is a member of m with a level-1 link to n; 21 is full, so the suitable node is another one."""
    world, labels, at = fix_4({19: FULL_AT_1, 21: FULL_AT_1})
    s = world.join(at[21], (1,))
    world.run()
    joined = world.joined(s)
    assert joined.address == (*labels.unit("SSC-B.SC-6.m"), FIRST_FREE)
    to_n, in_m = joined.links
    assert (to_n.level, to_n.place.address) == (1, at[20])
    assert in_m.level == 0 and in_m.place.address[:-1] == labels.unit("SSC-B.SC-6.m")


def test_nop_12_m_full_and_no_other_cluster_fails() -> None:
    """NOP-12: m cannot take s at level 0, and SC-6 has no third cluster; the gateway kept in n is given back."""
    world, _, at = fix_4(dict.fromkeys(FIX_4["SSC-B.SC-6.m"], FULL_AT_0))
    s = world.join(at[21], (1,))
    world.run()
    assert "no broker of this cluster has a level-0 gateway free" in world.refusal(s)
    assert all(broker.statistics().slots == 0 for broker in world.brokers.values())
    assert list(world.brokers) == list(at.values())


def unit_labels() -> tuple[Labels, dict[int, tuple[int, ...]]]:
    """SC-10 before the merge, in the numbering of its own network."""
    labels = Labels()
    clusters = {"v": (22, 23, 24), "w": (25, 26, 27)}
    return labels, {
        number: labels.add(f"SSC-D.SC-10.{c}.{number}") for c, numbers in clusters.items() for number in numbers
    }


def test_nop_16_sc_10_becomes_sc_8_of_ssc_b() -> None:
    """NOP-16, NOP-15, AMB-5: v.23 asks for level 2 inside SSC-B; the clusters of the super-cluster keep their ids."""
    world, labels, at = fix_4()
    _, old = unit_labels()
    spokesman = Applicant("broker-23", "unit-sc-10", 2, old[23])
    guest = world.join(at[21], (2,), applicant=spokesman)
    world.run()
    joined = world.joined(guest)
    for number, address in old.items():
        labels.add(f"SSC-B.SC-8.{'v' if number < 25 else 'w'}.{number}")  # the name is a matter of configuration
        assert labels.unit(f"SSC-B.SC-8.{'v' if number < 25 else 'w'}.{number}") == joined.new + address[2:]
    assert joined.address == labels.unit("SSC-B.SC-8.v.23")
    assert joined.new == labels.unit("SSC-B.SC-8") and joined.old == old[23][:2]
    assert labels.unit("SSC-B.SC-8.w") == (*joined.new, old[25][2])
    with pytest.raises(InvalidAddress, match="SC-10"):
        labels.unit("SSC-B.SC-10")
    (grant,) = joined.links
    assert grant.level == 2 and link_level(joined.address, grant.place.address) == 2


@pytest.mark.parametrize("levels", [(1,), (1, 2), (0,), (0, 2)])
def test_nop_13_and_16_a_unit_asks_for_nothing_below_its_level(levels: tuple[int, ...]) -> None:
    """NOP-13, NOP-16: no node of SC-10 can be a cluster gateway, let alone a cluster member, in SSC-B."""
    world, _, at = fix_4()
    _, old = unit_labels()
    guest = world.join(at[21], levels, applicant=Applicant("broker-23", "unit-sc-10", 2, old[23]))
    world.run()
    assert f"cannot ask for level {levels[0]}" in world.refusal(guest)


def test_nop_16_level_3_only_for_a_super_super_cluster_of_its_own() -> None:
    """AMB-5: a super-cluster that asks for level 3 gets its own super-super-cluster beside SSC-B."""
    world, labels, at = fix_4()
    _, old = unit_labels()
    guest = world.join(at[21], (3,), applicant=Applicant("broker-23", "unit-sc-10", 2, old[23]))
    world.run()
    joined = world.joined(guest)
    assert joined.new == (1, 0) and joined.address == (1, 0, *old[23][2:])
    assert joined.links[0].level == 3 == link_level(joined.address, labels.unit("SSC-B.SC-6.n.21"))
