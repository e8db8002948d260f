"""The virtual world: real core brokers on a virtual clock, network and disk.

`World` gives inputs and carries out effects; `network` delays and loses frames; `node` is a broker's process and disk;
`options` draws a run's numbers from its seed; `joining` and `dialling` act for drivers; `map_oracle`, `routes` and
`predicted_copies` compute what brokers at rest must know or send.
May import: networks.
"""
