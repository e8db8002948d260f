"""The two smallest engines: `integer` and `topic`, one dictionary look-up an event.

Each says what an event shows it and which constraints it takes; the dictionary itself is in `base.exact`.
May import: base.
"""
