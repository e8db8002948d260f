"""The engine for tag constraints such as `Make=Ford,Model=*`.

`engine` decides between two indexes: `profile_graph`, the paper's tree of shared paths, and `sets`, one hash look-up
for each shape, which is a set of tag names. `pairs` parses a constraint and numbers its pairs; `snapshot` writes both
indexes as columns.
May import: base, condition, index.
"""
