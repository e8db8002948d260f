"""The bytes between processes: every frame as a dataclass, and frames to bytes and back.

`codec` encodes and decodes; `header` has the layout and the faults of a frame, `bounds` the ranges of its numbers;
`event`, `section` and `burst` hold events, `event_id` their ids; the others hold the control frames of one subject each
(`control` for links between brokers, `client`, `interest`, `membership`, `discovery`, `explain`, `staging`,
`log_tables`, `locator`).
Here are bounds of fields and checks of what a stranger sent, and the notes that brokers tell each other about an
event's path (`trace_facts`).
Nothing here keeps state of a broker or decides what to send: that is for the room that owns the subject.
May import: no other room of the core.
"""
