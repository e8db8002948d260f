"""The collaboratory: scientists in several places watch, steer and discuss running simulations.

Everything here is a client of the mesh. The services add no guarantee of their own and publish nothing again: once, in
order, also to who was away, is the mesh's doing. The four components that make a publish-subscribe system (DIS-19) are
rooms and modules: the type of information (`dictionary`), publishing and discovery (`trading`), saying what one wants
(`domain.subscriptions`), matching and dissemination (the mesh itself, with `domain.aggregation` on top).
"""

from __future__ import annotations
