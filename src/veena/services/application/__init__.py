"""A running program on the mesh: its offer, its state and fields, and how it is steered.

`application` puts it on the mesh; `desk` decides about each command; `parameters` checks values; `steering_lock` lets
one driver steer at a time; `heat` is the sample simulation.
May import: `structured`, `wording`, dictionary, trading, domain.
"""
