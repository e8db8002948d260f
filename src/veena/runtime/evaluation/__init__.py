"""Constraints that cost more than a broker's loop may spend, evaluated in a process that can be ended.

`Worker` starts that process when it is first needed, gives it one question after another, and ends it when it takes too
long; `process` is what runs in it.
Whose question is next, and what becomes of the verdict, is decided in `veena.core.delivery.evaluations`.
May import: supervision, logging.
"""
