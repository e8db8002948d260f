"""The event dictionary: which event types a collaboratory has, their fields, and who may publish them.

`dictionary` answers questions, `entry` is one type, `file`, `schema`, `reader` and `lines` read TOML and JSON Schema
with the line of each fault, `samples` checks sample events.
May import: the modules `structured` and `wording`.
"""
