"""Digests: what a large unit may want, in a few kilobytes, never narrower than the truth (design §5).

Each want has *required atoms*: every event that it matches surely has one of them. Nearly always there is one: a topic,
an integer, a tag with a value, an attribute with a value, an element that an XPath requires, or at least the kind of
the event. A constraint that is a disjunction has those of its parts, so that one subscription to several things is
known as well as several (AGG-01). A digest is the set of these atoms as hashes; an event may be wanted when one of its
own atoms is in the set. The other conditions of a selector or an XPath are not in it: they are tested where an event
enters the unit, so a digest lets through a few that nobody wants, and never stops one.

Beside its atoms a digest tells of which kinds of wants they are and, while they are few, which attributes and tags they
name: whoever asks it need not read anything else of an event. Folding keeps that, and merging is the union.

While the atoms are few they stand there as 8-byte hashes, beyond `MAX_ATOMS` as a Bloom filter. Hashes are BLAKE2 with
a name of their own, never Python's. Digests of a unit's sub-units merge into the unit's: the union.

All digests that a broker keeps of the units around it take at most `MAX_KEPT_BYTES`, whatever the units tell: each has
an equal share of them, and one that is larger is *folded* into its share. A filter is folded by laying one half over
the other. Since positions are counted modulo its length, a power of two, the result is the filter that would have been
made at that length: wider, never narrower, and the same whether it is folded at once or step by step, by its speaker or
by whoever keeps it. In the other direction a filter may be repeated without changing an answer, so filters of any two
lengths merge. Up to 16 units around a broker nothing is folded that holds wants of one scope only.

Rejected: one atom a want. A disjunction then requires nothing, and every structured event sets out for the unit.
Rejected: a fixed length for the largest network that the fan-out allows. It would be a quarter of the present one in
networks that need none of it, and half of the events would enter large units in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakValueDictionary

from veena.address import Unit
from veena.core.interest.constraint import CONSTRAINT, READ_CACHE, SELECTOR, TAGS, TOPIC, XPATH, Want, nowhere
from veena.core.wire.interest import MAX_DIGEST_BYTES, MAX_DIGEST_NAMES, MAX_NAME_CHARACTERS, DigestPart
from veena.errors import InvalidEvent, RemoteProtocolError
from veena.event import parse_tags
from veena.matching.condition.constraint_parser import parse_constraint
from veena.matching.condition.formula import All, Any, EqualTo, Formula, InRange, OneOf, Presence
from veena.matching.condition.normal_form import normal_form
from veena.matching.engines.constraint import constraint_attributes

if TYPE_CHECKING:
    from veena.event import Event
    from veena.matching.base.engine import Constraint

#: Units of this level and above are known by digests; of those below rows are told.
DIGEST_LEVEL = 2
ATOM_BYTES = 8
#: Exact up to here: 4 KiB.
MAX_ATOMS = 512
#: Tests a filter makes: with 8 KiB about 1 % false positives at 6,000 atoms.
BLOOM_TESTS = 5
#: No filter is shorter: 8 parts of each unit that an address can name, 512, are within the limit below.
MIN_FILTER_BYTES = 8
#: All digests that a broker keeps of the units around it.
MAX_KEPT_BYTES = 128 * 1024
#: Atoms of one want: as many as an index has rows for it (`index_rows.MAX_ROWS`). A longer disjunction is known by
#: less, so that one subscription does not fill a digest.
MAX_WANT_ATOMS = 64
#: Vectors of atoms that are remembered.
MAX_VECTORS = 1 << 14
ANY_XML = b"x*"
#: What a digest that knows XPaths by elements holds beside these, and a document has whose elements are not looked at.
ANY_ELEMENT = b"x+"
#: Documents whose elements are looked at, and different elements of one.
MAX_DOCUMENT, MAX_ELEMENTS = 16 * 1024, 64
ANY_STRUCTURED = b"c*"

#: Atoms that begin with one of these have a name of an attribute or a tag.
_NAMING = frozenset((b"a", b"b", b"g", b"n"))

Atoms = frozenset[bytes]


def required_atoms(want: Want) -> tuple[bytes, ...]:
    """Of these every event that satisfies the want has one; none when no event does."""
    constraint = want.constraint
    engine = want.engine
    if engine == "integer":
        return (b"i" + str(constraint).encode(),)
    if engine == "topic":
        return (b"t" + str(constraint).encode(),)
    if engine == "selector":
        return (b"t" + constraint[0].encode(),)  # type: ignore[index]
    if engine == "tags":
        return (_tag_atom(parse_tags(str(constraint))),)
    if engine == "xpath":
        return _xpath_atoms(constraint)
    if engine == "to":
        return (b"@" + str(constraint).encode(),)
    return _structured_atoms(normal_form(parse_constraint(str(constraint))))


def _xpath_atoms(constraint: Constraint) -> tuple[bytes, ...]:
    """An element without which the XPath is false, and what stands for every element where those of a document are too
    many to be told one by one; any XML where no element is required."""
    from veena.matching.xpath.template import required_name

    name = required_name(constraint)
    return (b"e" + name.encode(), ANY_ELEMENT) if name else (ANY_XML,)


def _tag_atom(tags: Mapping[str, str]) -> bytes:
    """The longest tag=value, which is likely the rarest; the first name when every value is open."""
    valued = [f"{name}={value}" for name, value in tags.items() if value != "*"]
    if valued:
        return b"g" + max(valued, key=lambda pair: (len(pair), pair)).encode()
    return b"n" + min(tags).encode()


def _structured_atoms(formula: Formula) -> tuple[bytes, ...]:
    """Values before names, few before many; all structured events where nothing better is known."""
    if isinstance(formula, Any):
        found = dict.fromkeys(atom for part in formula.parts for atom in _structured_atoms(part))
        return tuple(found) if len(found) <= MAX_WANT_ATOMS and ANY_STRUCTURED not in found else (ANY_STRUCTURED,)
    if isinstance(formula, All):
        return min(map(_structured_atoms, formula.parts), key=_vagueness, default=(ANY_STRUCTURED,))
    if isinstance(formula, EqualTo):
        return (attribute_atom(formula.name, formula.value),)
    if isinstance(formula, OneOf) and len(formula.values) <= MAX_WANT_ATOMS:
        return tuple(dict.fromkeys(attribute_atom(formula.name, value) for value in formula.values))
    if isinstance(formula, InRange | OneOf) or (isinstance(formula, Presence) and formula.present):
        return (attribute_atom(formula.name, None),)
    return (ANY_STRUCTURED,)


def _vagueness(atoms: tuple[bytes, ...]) -> tuple[bool, bool, int, tuple[bytes, ...]]:
    return ANY_STRUCTURED in atoms, any(atom.startswith(b"b") for atom in atoms), len(atoms), atoms


def attribute_atom(name: str, value: object) -> bytes:
    """An attribute with a text value, or its name alone: numbers have many spellings of one value."""
    return f"a{name}={value}".encode() if isinstance(value, str) else b"b" + name.encode()


def event_atoms(event: Event, names: Names | None = None) -> list[bytes]:
    """Everything of an event that a want could require; of one with addressees nothing but these (EVT-05). With names
    given, what is asked for nothing else."""
    if event.to:
        return [hashed_atom(b"@" + client_id.encode()) for client_id in dict.fromkeys(event.to)]
    atoms: list[bytes] = []
    if event.integer is not None:
        atoms.append(b"i" + str(event.integer).encode())
    if event.topic is not None:
        atoms.append(b"t" + event.topic.encode())
    for tag, text in event.tag_values.items() if names is None or names.tags else ():
        atoms += (b"g" + f"{tag}={text}".encode(), b"n" + tag.encode())
    if event.xml is not None:
        atoms.append(ANY_XML)
        if names is None or names.xml:
            atoms += _elements(event.xml)
    atoms.append(ANY_STRUCTURED)
    known = None if names is None else names.names
    for name, value in constraint_attributes(event).items() if known is None or known else ():
        if value is not None and (known is None or name in known):
            atoms.append(b"b" + name.encode())
            if isinstance(value, str):
                atoms.append(attribute_atom(name, value))
    return [hashed_atom(atom) for atom in atoms]


@lru_cache(maxsize=64)
def _elements(document: str | bytes) -> tuple[bytes, ...]:
    """The elements of a document, or what stands for any."""
    from veena.matching.xpath.document import parse_document

    if len(document) > MAX_DOCUMENT:
        return (ANY_ELEMENT,)
    try:
        found = dict.fromkeys(str(each.tag) for each in parse_document(document).iter() if isinstance(each.tag, str))
    except InvalidEvent:
        return ()  # nobody can match it
    return (ANY_ELEMENT,) if len(found) > MAX_ELEMENTS else tuple(b"e" + name.encode() for name in found)


def hashed_atom(atom: bytes) -> bytes:
    return blake2b(atom, digest_size=ATOM_BYTES, person=b"veena-atom").digest()


@lru_cache(maxsize=READ_CACHE)
def _atoms_of(kind: int, packed: str | bytes) -> tuple[tuple[bytes, ...], int, tuple[str, ...]]:
    """The hashes, and what they read: kinds and names. Read once, though asked for by several levels; a want's scope
    makes no difference."""
    want = Want(packed, b"", nowhere(kind, 0))
    atoms = required_atoms(want)
    named = (atom[1:].partition(b"=")[0] for atom in atoms if atom[:1] in _NAMING)
    names = tuple(dict.fromkeys(name.decode() for name in named))
    # A selector is known by its topic.
    return tuple(map(hashed_atom, atoms)), 1 << (TOPIC if want.base == SELECTOR else want.base), names


def atoms_of(want: Want) -> tuple[bytes, ...]:
    """The hashes by which a digest lets through what a want asks for: it has to hold all of them."""
    if isinstance(want.packed, str):  # a topic is read faster than it is found
        return (hashed_atom(b"t" + want.packed.encode()),)
    return _atoms_of(want.kind, want.packed)[0]


def _reads_of(want: Want) -> tuple[int, tuple[str, ...]]:
    """The kind that a digest has for a want, and the names that its atoms read."""
    return (1 << TOPIC, ()) if isinstance(want.packed, str) else _atoms_of(want.kind, want.packed)[1:]


def make_part(scope: int, wants: Iterable[Want]) -> DigestPart:
    """The digest of these wants."""
    atoms: set[bytes] = set()
    kinds, names = 0, dict[str, None]()
    for want in wants:
        atoms.update(atoms_of(want))
        kind, named = _reads_of(want)
        kinds |= kind
        if named:
            names.update(dict.fromkeys(named))
    return _part(scope, sorted(atoms), kinds, _few(names))


def _few(names: Iterable[str]) -> tuple[str, ...] | None:
    """The names in order; None, for any, where they are too many."""
    found = tuple(sorted(set(names)))
    return found if len(found) <= MAX_DIGEST_NAMES and sum(map(len, found)) <= MAX_NAME_CHARACTERS else None


def make_parts(wants: Iterable[Want]) -> list[DigestPart]:
    """The digest of wants of several scopes."""
    by_scope: dict[int, list[Want]] = {}
    for want in wants:
        by_scope.setdefault(want.scope, []).append(want)
    return [make_part(scope, by_scope[scope]) for scope in sorted(by_scope)]


def _part(scope: int, atoms: list[bytes], kinds: int, names: tuple[str, ...] | None) -> DigestPart:
    if len(atoms) <= MAX_ATOMS:
        return DigestPart(scope, False, b"".join(atoms), kinds, names)
    return DigestPart(scope, True, _filter(atoms, bytes(MAX_DIGEST_BYTES)), kinds, names)


def _filter(atoms: list[bytes], data: bytes) -> bytes:
    """A filter with these atoms in addition."""
    bits = bytearray(data)
    for atom in atoms:
        for at in _positions(atom, 8 * len(bits)):
            bits[at >> 3] |= 1 << (at & 7)
    return bytes(bits)


def _positions(atom: bytes, length: int) -> list[int]:
    """The bits of an atom in a filter of so many: of a power of two, so that half a filter is a filter."""
    one, other = int.from_bytes(atom[:4], "big"), int.from_bytes(atom[4:], "big") | 1
    return [(one + number * other) & (length - 1) for number in range(BLOOM_TESTS)]


def digest_limit(units: int) -> int:
    """What the digest of one unit may take where those of so many are kept."""
    return MAX_KEPT_BYTES // max(units, 1)


def size_of(parts: Iterable[DigestPart]) -> int:
    """The bytes of a digest."""
    return sum(len(part.data) for part in parts)


def fitted(parts: Sequence[DigestPart], limit: int) -> tuple[DigestPart, ...]:
    """This digest within so many bytes, by halving its largest part again and again: wider, never narrower."""
    found = list(parts)
    while size_of(found) > limit:
        at = max(range(len(found)), key=lambda number: len(found[number].data))
        found[at] = _halved(found[at])
    return tuple(found)


def foldings(part: DigestPart) -> list[DigestPart]:
    """A part as it is, and at every length to which `fitted` may bring it."""
    found = [part]
    while len(found[-1].data) > MIN_FILTER_BYTES:
        found.append(_halved(found[-1]))
    return found


def _halved(part: DigestPart) -> DigestPart:
    size = len(part.data)
    assert size > MIN_FILTER_BYTES, "a limit leaves room for the shortest filters"
    if not part.bloom:  # the largest filter that is shorter than the hashes: at least 32 bits for each
        data = _filter(_split(part.data), bytes(1 << (size - 1).bit_length() - 1))
        return DigestPart(part.scope, True, data, part.kinds, part.names)
    one, other = (int.from_bytes(half, "little") for half in (part.data[: size // 2], part.data[size // 2 :]))
    return DigestPart(part.scope, True, (one | other).to_bytes(size // 2, "little"), part.kinds, part.names)


def check_parts(parts: Sequence[DigestPart], level: int, levels: int) -> None:
    """Raise RemoteProtocolError unless this can be the digest of a unit of that level."""
    scopes = [part.scope for part in parts]
    if scopes != sorted(dict.fromkeys(scopes)) or any(not level < scope <= levels for scope in scopes):
        raise RemoteProtocolError(f"a digest of scope {scopes}: expected ascending ones, {level + 1} to {levels}")
    for part in parts:
        size = len(part.data)
        names = part.names or ()
        if list(names) != sorted(set(names)) or sum(map(len, names)) > MAX_NAME_CHARACTERS:
            raise RemoteProtocolError(
                f"a digest that names {len(names)} attributes: expected ascending names of at most"
                f" {MAX_NAME_CHARACTERS} characters together"
            )
        if part.bloom and (size < MIN_FILTER_BYTES or size & (size - 1)):
            raise RemoteProtocolError(f"a filter of {size} bytes: expected a power of two from {MIN_FILTER_BYTES}")
        if not part.bloom and size % ATOM_BYTES:
            raise RemoteProtocolError(f"hashes of {size} bytes: expected a multiple of {ATOM_BYTES}")


def merge_parts(scope: int, parts: Iterable[DigestPart]) -> DigestPart:
    """The union of digests of one scope."""
    found = list(parts)
    exact = sorted({atom for part in found if not part.bloom for atom in _split(part.data)})
    blooms = [part.data for part in found if part.bloom]
    kinds, names = _merged_reads(found)
    if not blooms:
        return _part(scope, exact, kinds, names)
    # Hashes gain by a long filter, filters by none longer than the longest.
    size = MAX_DIGEST_BYTES if exact else max(map(len, blooms))
    union = 0
    for data in blooms:
        union |= int.from_bytes(data * (size // len(data)), "little")
    return DigestPart(scope, True, _filter(exact, union.to_bytes(size, "little")), kinds, names)


def _merged_reads(parts: Iterable[DigestPart]) -> tuple[int, tuple[str, ...] | None]:
    kinds, names = 0, set[str]()
    is_any = False
    for part in parts:
        kinds |= part.kinds
        is_any = is_any or part.names is None
        names.update(part.names or ())
    return kinds, None if is_any else _few(names)


def merge_digests(*digests: Iterable[DigestPart]) -> list[DigestPart]:
    """The union of whole digests, scope by scope."""
    by_scope: dict[int, list[DigestPart]] = {}
    for digest in digests:
        for part in digest:
            by_scope.setdefault(part.scope, []).append(part)
    return [merge_parts(scope, by_scope[scope]) for scope in sorted(by_scope)]


def _split(data: bytes) -> list[bytes]:
    return [data[at : at + ATOM_BYTES] for at in range(0, len(data), ATOM_BYTES)]


#: The hashes of digests that are being asked: equal ones are held once, however many ask them, while anybody does.
_asked: WeakValueDictionary[bytes, Atoms] = WeakValueDictionary()


def _atoms_in(data: bytes) -> Atoms:
    atoms = _asked.get(data)
    if atoms is None:
        atoms = _asked[data] = frozenset(_split(data))
    return atoms


class DigestTest:
    """One part of a digest, made ready for asking."""

    __slots__ = ("_atoms", "_bits", "part")

    def __init__(self, part: DigestPart) -> None:
        self.part = part
        self._bits = part.data if part.bloom else b""
        self._atoms: Atoms = frozenset() if part.bloom else _atoms_in(part.data)

    def holds(self, want: Want) -> bool:
        """Whether it lets through what a want asks for."""
        kind, names = _reads_of(want)
        if not self.part.kinds & kind or (self.part.names is not None and not set(names) <= set(self.part.names)):
            return False
        return all(self.may_want([atom]) for atom in atoms_of(want))

    def may_want(self, atoms: list[bytes]) -> bool:
        if not self._bits:
            return not self._atoms.isdisjoint(atoms)
        length = 8 * len(self._bits)
        return any(all(self._bits[at >> 3] >> (at & 7) & 1 for at in _positions(atom, length)) for atom in atoms)


class Names(NamedTuple):
    """What digests read of events beside topic and integer: tags or not, elements or not, and the names of attributes
    and tags, None for any."""

    tags: bool
    xml: bool
    names: frozenset[str] | None


class Outlined(Protocol):
    """An event without XML and addressees, as engines see it."""

    @property
    def topic(self) -> str | None: ...
    @property
    def tag_values(self) -> Mapping[str, str]: ...
    @property
    def properties(self) -> Mapping[str, object]: ...
    @property
    def headers(self) -> Mapping[str, object]: ...


class Digested:
    """The digests around one broker, until one of them changes, asked about events that are published here.

    Each atom is looked for in all digests once: there is one vector for it, that of the units whose digests let it
    through. The invariant: the OR over all atoms of an event is what asking each digest about the event comes to.
    """

    def __init__(self, digests: Mapping[Unit, Mapping[int, DigestTest]], bit: Callable[[Unit], int]) -> None:
        self._digests = digests
        self._bit = bit
        self._known: dict[bytes, int] = {}
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        if self._names is None:
            self._names = self._read()
        return self._names

    def _read(self) -> Names:
        parts = [test.part for of_unit in self._digests.values() for test in of_unit.values()]
        kinds, names = _merged_reads(parts)
        if not kinds >> CONSTRAINT & 1 and not kinds >> TAGS & 1:
            names = ()
        return Names(bool(kinds >> TAGS & 1), bool(kinds >> XPATH & 1), None if names is None else frozenset(names))

    def _vector(self, atom: bytes) -> int:
        found = self._known.get(atom)
        if found is None:
            hashed, found = [hashed_atom(atom)], 0
            for unit, tests in self._digests.items():
                if any(test.may_want(hashed) for test in tests.values()):
                    found |= self._bit(unit)
            if len(self._known) >= MAX_VECTORS:
                self._known.clear()
            self._known[atom] = found
        return found

    def of_topic(self, topic: str | None) -> int:
        """The units that may want every event of a topic."""
        if not self._digests:
            return 0
        found = self._vector(ANY_STRUCTURED)
        return found if topic is None else found | self._vector(b"t" + topic.encode())

    def of_attributes(self, event: Outlined) -> int:
        """The units that may want an event for its tags and attributes."""
        found, (tags, _, names) = 0, self.names
        if tags:
            for tag, text in event.tag_values.items():
                if names is None or tag in names:
                    found |= self._vector(b"g" + f"{tag}={text}".encode()) | self._vector(b"n" + tag.encode())
        shown: Mapping[str, object] = event.properties
        if names is None or any(name[:1] == "$" for name in names):
            shown = constraint_attributes(event)  # type: ignore[arg-type]
        for name, value in shown.items():
            if value is not None and (names is None or name in names):
                found |= self._vector(attribute_atom(name, None))
                if isinstance(value, str):
                    found |= self._vector(attribute_atom(name, value))
        return found
