"""Testing thousands of conditions at once: formulas become rows of columns, and an event meets only few of them.

`rows` makes rows from a formula; `segments`, `bitmap` and `cells` store and scan them with NumPy; `features` numbers an
event's values; `residual` evaluates what columns cannot; `plan` and `template` go from the text of a known
shape straight to rows; `profiles` knows who holds a condition; `engine` is the engine over all this; `snapshot`
ships it.
Parsing and the meaning of one condition are in `condition`.
May import: base, condition.
"""
