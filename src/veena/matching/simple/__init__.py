"""The two smallest engines: integer topics and string topics, one dictionary look-up an event.

The dictionary itself is in `base.exact`.
May import: base.
"""
