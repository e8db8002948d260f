"""Digests: what a large unit may want, in a few kilobytes, never narrower than the truth (design §5).

Each want has one *required atom*, something that every event it matches surely has: its topic, its integer, a tag with
a value, an attribute with a value, or at least the kind of the event. A digest is the set of these atoms as hashes; an
event may be wanted when one of its own atoms is in the set. A selector's or an XPath's other conditions are not in it:
they are tested where an event enters the unit, so a digest lets through a few that nobody wants, and never stops one.

While the atoms are few they stand there as 8-byte hashes, beyond `MAX_ATOMS` as a Bloom filter. Hashes are BLAKE2 with
a name of their own, never Python's. Digests of a unit's sub-units merge into the unit's: the union.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from veena.core.interest_frames import MAX_DIGEST_BYTES, DigestPart
from veena.core.want import KINDS, READ_CACHE, Want
from veena.event import parse_tags
from veena.matching.constraint import constraint_attributes
from veena.matching.constraint_text import parse_constraint
from veena.matching.formula import All, EqualTo, Formula, InRange, OneOf, Presence
from veena.matching.normal_form import normal_form

if TYPE_CHECKING:
    from veena.event import Event

ATOM_BYTES = 8
#: Exact up to here: 4 KiB.
MAX_ATOMS = 512
#: Bits of the filter: full size from the start, so that filters of one network can be merged.
BLOOM_BITS = 8 * MAX_DIGEST_BYTES
#: Tests a filter makes: with 8 KiB about 1 % false positives at 6,000 atoms.
BLOOM_TESTS = 5
ANY_XML = b"x*"
ANY_STRUCTURED = b"c*"

Atoms = frozenset[bytes]


def required_atom(want: Want) -> bytes:
    """What every event that satisfies the want has."""
    constraint = want.constraint
    engine = KINDS[want.kind]
    if engine == "integer":
        return b"i" + str(constraint).encode()
    if engine == "topic":
        return b"t" + str(constraint).encode()
    if engine == "selector":
        return b"t" + constraint[0].encode()  # type: ignore[index]
    if engine == "tags":
        return _tag_atom(parse_tags(str(constraint)))
    if engine == "xpath":
        return ANY_XML
    if engine == "to":
        return b"@" + str(constraint).encode()
    return _structured_atom(normal_form(parse_constraint(str(constraint))))


def _tag_atom(tags: Mapping[str, str]) -> bytes:
    """The longest tag=value, which is likely the rarest; the first name when every value is open."""
    valued = [f"{name}={value}" for name, value in tags.items() if value != "*"]
    if valued:
        return b"g" + max(valued, key=lambda pair: (len(pair), pair)).encode()
    return b"n" + min(tags).encode()


def _structured_atom(formula: Formula) -> bytes:
    leaves = formula.parts if isinstance(formula, All) else (formula,)
    equal = [leaf for leaf in leaves if isinstance(leaf, EqualTo)]
    if equal:
        chosen = min(equal, key=lambda leaf: (not isinstance(leaf.value, str), leaf.name))
        return _attribute(chosen.name, chosen.value)
    named = [
        leaf.name
        for leaf in leaves
        if isinstance(leaf, InRange | OneOf) or (isinstance(leaf, Presence) and leaf.present)
    ]
    return _attribute(min(named), None) if named else ANY_STRUCTURED


def _attribute(name: str, value: object) -> bytes:
    """An attribute with a text value, or its name alone: numbers have many spellings of one value."""
    return f"a{name}={value}".encode() if isinstance(value, str) else b"b" + name.encode()


def event_atoms(event: Event) -> list[bytes]:
    """Everything of an event that a want could require; of one with addressees nothing but these (EVT-05)."""
    if event.to:
        return [_hashed(b"@" + client_id.encode()) for client_id in dict.fromkeys(event.to)]
    atoms: list[bytes] = []
    if event.integer is not None:
        atoms.append(b"i" + str(event.integer).encode())
    if event.topic is not None:
        atoms.append(b"t" + event.topic.encode())
    for tag, text in event.tag_values.items():
        atoms += (b"g" + f"{tag}={text}".encode(), b"n" + tag.encode())
    if event.xml is not None:
        atoms.append(ANY_XML)
    atoms.append(ANY_STRUCTURED)
    for name, value in constraint_attributes(event).items():
        if value is not None:
            atoms.append(b"b" + name.encode())
            if isinstance(value, str):
                atoms.append(_attribute(name, value))
    return [_hashed(atom) for atom in atoms]


def _hashed(atom: bytes) -> bytes:
    return blake2b(atom, digest_size=ATOM_BYTES, person=b"veena-atom").digest()


@lru_cache(maxsize=READ_CACHE)
def _atom_of(kind: int, payload: bytes) -> bytes:
    """Read once, though asked for at every review; a want's scope makes no difference."""
    return _hashed(required_atom(Want(kind, payload, 0, b"")))


def atom_of(want: Want) -> bytes:
    """The hash by which a digest lets through what a want asks for."""
    return _atom_of(want.kind, want.payload)


def make_part(scope: int, wants: Iterable[Want]) -> DigestPart:
    """The digest of these wants."""
    return _part(scope, sorted({atom_of(want) for want in wants}))


def _part(scope: int, atoms: list[bytes]) -> DigestPart:
    if len(atoms) <= MAX_ATOMS:
        return DigestPart(scope, False, b"".join(atoms))
    bits = bytearray(MAX_DIGEST_BYTES)
    for atom in atoms:
        for at in _positions(atom):
            bits[at >> 3] |= 1 << (at & 7)
    return DigestPart(scope, True, bytes(bits))


def _positions(atom: bytes) -> list[int]:
    one, other = int.from_bytes(atom[:4], "big"), int.from_bytes(atom[4:], "big") | 1
    return [(one + number * other) % BLOOM_BITS for number in range(BLOOM_TESTS)]


def merge_parts(scope: int, parts: Iterable[DigestPart]) -> DigestPart:
    """The union of digests of one scope."""
    found = list(parts)
    exact = sorted({atom for part in found if not part.bloom for atom in _split(part.data)})
    blooms = [part.data for part in found if part.bloom]
    if not blooms:
        return _part(scope, exact)
    union = 0
    for data in blooms:
        union |= int.from_bytes(data, "little")
    bits = bytearray(union.to_bytes(MAX_DIGEST_BYTES, "little"))
    for atom in exact:
        for at in _positions(atom):
            bits[at >> 3] |= 1 << (at & 7)
    return DigestPart(scope, True, bytes(bits))


def merge_digests(*digests: Iterable[DigestPart]) -> list[DigestPart]:
    """The union of whole digests, scope by scope."""
    by_scope: dict[int, list[DigestPart]] = {}
    for digest in digests:
        for part in digest:
            by_scope.setdefault(part.scope, []).append(part)
    return [merge_parts(scope, by_scope[scope]) for scope in sorted(by_scope)]


def _split(data: bytes) -> list[bytes]:
    return [data[at : at + ATOM_BYTES] for at in range(0, len(data), ATOM_BYTES)]


class DigestTest:
    """One part of a digest, made ready for asking."""

    __slots__ = ("_atoms", "_bits")

    def __init__(self, part: DigestPart) -> None:
        self._bits = part.data if part.bloom else b""
        self._atoms: Atoms = frozenset() if part.bloom else frozenset(_split(part.data))

    def may_want(self, atoms: list[bytes]) -> bool:
        if not self._bits:
            return not self._atoms.isdisjoint(atoms)
        return any(all(self._bits[at >> 3] >> (at & 7) & 1 for at in _positions(atom)) for atom in atoms)
