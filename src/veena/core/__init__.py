"""The protocols as pure state machines: time, chance and bytes are arguments, no IO happens here."""
