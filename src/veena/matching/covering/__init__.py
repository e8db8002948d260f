"""Which constraints cover which, found through an index instead of by comparing each with all others (AGG-07).

`form` is what of a constraint is compared: a conjunction as columns, or features of anything richer. `index` holds many
of them and finds those that cover one, and those that one covers; `table` holds the conjunctions of one shape, `blocks`
their ranges. What the texts mean the engines say (`veena.matching.cover_form`).
May import: base.
"""
