"""The bytes between processes: every frame as a dataclass, and frames to bytes and back.

`codec` encodes and decodes; `event`, `section` and `burst` hold events; the others hold the control frames of one
subject each (`client`, `interest`, `membership`, `discovery`, `explain`, `staging`, `log_tables`, `locator`).
Here are header layouts, bounds of fields, checks of what a stranger sent, ids of events as frames carry them, and
the notes that brokers tell each other about an event's path (`trace_facts`).
Nothing here keeps state of a broker or decides what to send: that is for the room that owns the subject.
May import: no other room of the core.
"""
