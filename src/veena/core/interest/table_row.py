"""A row of interest as a broker keeps it: what it adds to its want.

The want is one object for all tables of a broker, and its version is one for all that was told in a batch. A row as it
came would take 300 bytes. Those of the host's own units take still less (`announced`).

It stands apart from `table` because mypyc compiles no module that holds a class of msgspec.

The invariant: `row` gives what was told, field by field.
"""

from __future__ import annotations

from msgspec import Struct

from veena.address import Unit
from veena.core.interest.constraint import Want
from veena.core.wire.interest import STANDING, Row, Version


class Kept(Struct, frozen=True, gc=False):
    """A row of the table; of a mark, and where nothing is wanted any longer, the want is a name only."""

    want: Want
    wanted: bool
    version: Version

    @property
    def stands(self) -> bool:
        """Whether it tells a want."""
        return self.wanted and self.want.kind != STANDING

    def row(self, unit: Unit) -> Row:
        """As it is told."""
        want = self.want
        return Row(unit, want.key, self.version, self.wanted, want.kind, want.payload, want.scope)
