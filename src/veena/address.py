"""Where a unit stands: addresses, link levels and the bit vectors that name sets of units.

An address is the path of identifiers from the highest unit down: `0.1.2.6` is broker 6 of cluster 2 of super-cluster 1
of super-super-cluster 0 (CTX-01, CTX-04). It is a plain tuple, because the routing code hashes, slices and compares
millions of them: `address[: len(address) - level]` is the unit of that level, and two units are the same exactly when
their tuples are, which also keeps `<c, 1>` apart from `<c, 2>` (GPP-04). An identifier is unique only within its
enclosing unit (CTX-06) and is at the same time the number of the unit's bit in the enclosing unit's vector (DST-01).

With L + 1 levels a unit of level l has L + 1 - l identifiers (AMB-3). Names such as `SSC-A.SC-1.c.6` are labels from
the configuration; `Labels` gives them numbers in order of appearance.

Rejected: an Address class with methods. It costs 3 x at every look-up in the maps and says nothing that a tuple and
six functions do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from veena.errors import InvalidAddress

#: The path of a unit, highest identifier first. A broker's path is as long as the network has levels.
Unit = tuple[int, ...]
#: The path of a broker: a unit of level 0.
Address = tuple[int, ...]

#: Sub-units of a unit: 32 fills one word of a 128-bit address (NB), 64 is the block limit of GES (AMB-1).
FANOUTS = (32, 64)
DEFAULT_FANOUT = 32
#: Broker, cluster, super-cluster, super-super-cluster.
DEFAULT_LEVELS = 4
#: More levels than anybody needs: 32 ** 8 brokers. A bound for what comes over the wire.
MAX_LEVELS = 8
MAX_LABEL_LENGTH = 64

LEVEL_NAMES = ("broker", "cluster", "super-cluster", "super-super-cluster")


def level_name(level: int) -> str:
    """`cluster` for 1; levels above the fourth get one more `super-` each."""
    return LEVEL_NAMES[level] if level < len(LEVEL_NAMES) else "super-" * (level - 1) + "cluster"


def parse_address(text: str, levels: int | None = None, fanout: int = DEFAULT_FANOUT) -> Unit:
    """Read `0.1.2.6`; with `levels` given the text must be a broker's address."""
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts):
        raise InvalidAddress(f"address {text!r}: expected numbers joined by dots, such as 0.1.2.6")
    unit = tuple(int(part) for part in parts)
    check_unit(unit, fanout)
    if levels is not None and len(unit) != levels:
        raise InvalidAddress(f"address {text!r} has {len(unit)} parts; a broker of this network has {levels}")
    return unit


def format_address(unit: Unit) -> str:
    return ".".join(map(str, unit))


def check_unit(unit: Unit, fanout: int = DEFAULT_FANOUT) -> None:
    """Raise InvalidAddress unless this can be the path of a unit."""
    if not 1 <= len(unit) <= MAX_LEVELS:
        raise InvalidAddress(f"address {format_address(unit)!r} has {len(unit)} parts; expected 1 to {MAX_LEVELS}")
    for identifier in unit:
        if not 0 <= identifier < fanout:
            raise InvalidAddress(
                f"identifier {identifier} in address {format_address(unit)!r}: a unit holds at most {fanout} sub-units,"
                f" numbered 0 to {fanout - 1}"
            )


def ancestor(unit: Unit, by: int) -> Unit:
    """The unit that encloses this one `by` levels up; a broker's unit of level l is `ancestor(broker, l)`."""
    return unit[: len(unit) - by]


def link_level(one: Address, other: Address) -> int:
    """The highest level at which two brokers' addresses differ (CTX-05); the same broker twice has none."""
    assert len(one) == len(other), "addresses of one network have one length"
    if one != other:
        return len(one) - 1 - shared(one, other)
    raise InvalidAddress(f"broker {format_address(one)} has no link level with itself: name two different brokers")


def shared(one: Unit, other: Unit) -> int:
    """How many identifiers two paths have in common, from the highest down."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def as_seen(host: Address, unit: Unit) -> Unit:
    """The vertex of the host's map that stands for a unit outside it: the unit itself, or the larger one it lies in."""
    return unit[: shared(host, unit) + 1]


def contains(unit: Unit, other: Unit) -> bool:
    """Whether `other` is this unit or lies inside it."""
    return other[: len(unit)] == unit


def capacity(fanout: int, top_level: int) -> int:
    """How many brokers fit into a network whose highest units have this level (TOP-08, TOP-09)."""
    return int(fanout ** (top_level + 1))


# --- vectors: one bit a sub-unit, one word a level (DST-01..03) ---


def bit(identifier: int, fanout: int = DEFAULT_FANOUT) -> int:
    """The vector that holds this sub-unit alone."""
    if not 0 <= identifier < fanout:
        raise InvalidAddress(f"sub-unit {identifier}: a vector of {fanout} bits holds 0 to {fanout - 1}")
    return 1 << identifier


def identifiers(vector: int) -> Iterator[int]:
    """The sub-units in a vector, ascending."""
    while vector:
        lowest = vector & -vector
        yield lowest.bit_length() - 1
        vector ^= lowest


def words(unit: Unit, levels: int = DEFAULT_LEVELS, fanout: int = DEFAULT_FANOUT) -> tuple[int, ...]:
    """A unit as one word a level, highest first, one bit set in each word down to its own level."""
    return tuple(bit(identifier, fanout) for identifier in unit) + (0,) * (levels - len(unit))


def pack_words(vector: Sequence[int], fanout: int = DEFAULT_FANOUT) -> bytes:
    """Words as bytes, most significant first: 16 bytes for 4 levels of 32, 32 bytes for 4 levels of 64."""
    size = fanout // 8
    try:
        return b"".join(word.to_bytes(size, "big") for word in vector)
    except OverflowError:
        raise InvalidAddress(f"vector {list(map(hex, vector))} has bits beyond the fan-out of {fanout}") from None


def unpack_words(data: bytes, fanout: int = DEFAULT_FANOUT) -> tuple[int, ...]:
    size = fanout // 8
    if not data or len(data) % size:
        raise InvalidAddress(f"a vector of {len(data)} bytes is no whole number of {fanout}-bit words")
    return tuple(int.from_bytes(data[at : at + size], "big") for at in range(0, len(data), size))


class Labels:
    """The names of a network's units and the numbers they stand for, in order of appearance.

    The invariant: within one enclosing unit names and numbers are in one-to-one correspondence, and no number reaches
    the fan-out (TOP-07).
    """

    def __init__(self, levels: int = DEFAULT_LEVELS, fanout: int = DEFAULT_FANOUT) -> None:
        if fanout not in FANOUTS:
            raise InvalidAddress(f"fanout {fanout}: expected one of {', '.join(map(str, FANOUTS))}")
        if not 1 <= levels <= MAX_LEVELS:
            raise InvalidAddress(f"levels {levels}: expected 1 to {MAX_LEVELS}")
        self.levels = levels
        self.fanout = fanout
        self._numbers: dict[Unit, dict[str, int]] = {}
        self._names: dict[Unit, str] = {(): ""}

    def add(self, label: str) -> Address:
        """The address of a broker, numbering those parts of its path that are new."""
        parts = self._split(label)
        if len(parts) != self.levels:
            raise InvalidAddress(
                f"broker {label!r} has {len(parts)} parts; this network has {self.levels} levels,"
                f" so write {self.levels} labels joined by dots, highest unit first"
            )
        unit: Unit = ()
        for depth, part in enumerate(parts):
            numbers = self._numbers.setdefault(unit, {})
            if part not in numbers:
                if len(numbers) == self.fanout:
                    raise InvalidAddress(self._full(".".join(parts[:depth]), part, depth))
                numbers[part] = len(numbers)
                self._names[(*unit, numbers[part])] = ".".join(parts[: depth + 1])
            unit = (*unit, numbers[part])
        return unit

    def unit(self, label: str) -> Unit:
        """The unit that a label path names; a path shorter than a broker's names a larger unit."""
        unit: Unit = ()
        for part in self._split(label):
            number = self._numbers.get(unit, {}).get(part)
            if number is None:
                known = ", ".join(self._numbers.get(unit, {})) or "nothing"
                raise InvalidAddress(
                    f"{label!r}: there is no {part!r} in {self._names[unit] or 'the network'}; it holds {known}"
                )
            unit = (*unit, number)
        return unit

    def label(self, unit: Unit) -> str:
        """The label path of a unit, or its numbers where it never had a name."""
        return self._names.get(unit) or format_address(unit)

    def units(self) -> Iterable[Unit]:
        """Every unit with a name, in order of appearance."""
        return (unit for unit in self._names if unit)

    def _split(self, label: str) -> list[str]:
        parts = label.split(".")
        for part in parts:
            if not part or len(part) > MAX_LABEL_LENGTH or not part.isprintable() or any(c.isspace() for c in part):
                raise InvalidAddress(
                    f"label {label!r}: each part needs 1 to {MAX_LABEL_LENGTH} printable characters without spaces"
                )
        return parts

    def _full(self, parent: str, part: str, depth: int) -> str:
        kind = level_name(self.levels - 1 - depth)
        return (
            f"{parent or 'the network'} holds {self.fanout} {kind}s already, {part!r} is one too many;"
            f" move it to another unit, or set fanout = {FANOUTS[-1]}"
        )
