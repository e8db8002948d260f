"""Whether a set-up request may be asked at all, and what it asks for: decided from the request and this broker alone.

Intuition: before anybody is bothered, the contact reads the request like a form at the door. Wrong network, wrong level
or a second cluster ends it here, without a message to anyone else (NOP-11, NOP-13). What passes is one of three kinds.
The invariant: a request that is refused here changes no state anywhere.

Which level an address may ask for follows from the definitions: a link's level is the highest at which the two
addresses differ (CTX-05), so a *to* request shares everything above its highest bit and differs from there downwards
(NOP-09, AMB-6). A level-l unit asks for level l (AMB-5: the paper prints l + 1 for its example), or for a higher level
only, and then gets a unit of that level for itself. Requirements: NOP-01, NOP-04, NOP-06, NOP-09, NOP-11, NOP-13.

Rejected: mending a request that almost fits, by dropping bits. The node would end where it did not ask to be.
"""

from __future__ import annotations

from enum import Enum

from veena.address import Address, format_address, level_name, link_level
from veena.core.boundary.settings import ConnectionRules
from veena.core.membership.protocol import Peer, Wanted, decode_request
from veena.core.wire.membership import SetupRequest


class Kind(Enum):
    #: A newcomer, node or unit, wants to be a member: gateway and identifier.
    MEMBER = 1
    #: A newcomer wants a gateway *to* this unit and will be a member elsewhere (NOP-12).
    REACH = 2
    #: Somebody with an address wants one more gateway (NOP-04).
    GATEWAY = 3


def judge(request: SetupRequest, peer: Peer, address: Address, rules: ConnectionRules) -> tuple[Kind, int] | str:
    """What is asked of the broker at `address`, and at which level; or why it is refused outright."""
    wanted = decode_request(request.vector)
    levels = len(address)
    if (peer.ip or not peer.address) and not rules.admits(peer.ip):
        return f"nodes from {peer.ip or 'this transport'} are not accepted here"
    if max(wanted.highest, request.unit_level) >= levels:
        return f"level {max(wanted.highest, request.unit_level)} asked for; this network has levels 0 to {levels - 1}"
    if request.unit_level:
        return _judge_unit(request.unit_level, wanted, peer)
    if peer.address or request.address:
        return _judge_gateway(request, wanted, peer, address)
    return (Kind.MEMBER, 0) if wanted.is_from else (Kind.REACH, wanted.highest)


def _judge_unit(unit_level: int, wanted: Wanted, peer: Peer) -> tuple[Kind, int] | str:
    if peer.address:
        return "a broker of this network keeps its address: ask without a unit level"
    lowest = wanted.levels[0]
    if lowest < unit_level:
        return (
            f"a {level_name(unit_level)} that is added cannot ask for level {lowest}, only for {unit_level} and above:"
            " its nodes have their places inside it"
        )
    return Kind.MEMBER, unit_level if unit_level == lowest else wanted.highest


def _judge_gateway(request: SetupRequest, wanted: Wanted, peer: Peer, address: Address) -> tuple[Kind, int] | str:
    theirs = request.address
    if peer.address and theirs != peer.address:
        return f"address {format_address(theirs) or '(none)'} is not that of the broker that asks"
    if len(theirs) != len(address):
        return f"address {format_address(theirs)} is of another network: have its whole unit added"
    if theirs == address:
        return f"{format_address(address)} cannot link to itself"
    level = link_level(address, theirs)
    if wanted.is_from and (level > 0 or not peer.address):
        return "a node belongs to one cluster only: ask without level 0, or have its whole unit added"
    if level != wanted.highest:
        return (
            f"a link from {format_address(theirs)} to {format_address(address)} has level {level}, not {wanted.highest}"
        )
    return Kind.GATEWAY, level
