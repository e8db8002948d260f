"""Answers to "where did this event go?" and "why did this client get it, or not?".

`query` asks every broker what it remembers and waits for answers. `path` follows the event through what they told:
trails, hops, acceptances, where it is stuck. `verdict` is a pure function from these facts to a reason: words like
"expired", "not wanted" or "still on its way".
What a broker records is in `journal`; the values that answers are made of are in `wire.trace_facts`.
May import: all rooms from wire to sessions, and journal.
"""
