"""What enters and leaves the core as values: Inputs, Effects, the settings, and what the disk keeps.

`inputs_effects` has the main list; `clients`, `discovery`, `explain` and `staging` have those of one
subject. `settings` gives every default with its reason. `stored` lists the records that a broker writes and what a
restart finds. `tickets` pairs each write or read with the callback that waits for the disk.
Frames between processes are in `wire`; the SQLite store that carries out the writes is in `veena.runtime.store`.
May import: wire.
"""
