"""A client's conversation with its broker: subscribe, publish, acknowledge, request, and quench.

`Sessions` reads each input of a client, gives it to the room that decides (`interest`, `publishing`, `durable`) and
tells each reader of a durable subscription of new events. `requests` matches answers with requests and ends them at
their deadline. `quench` tells publishers whether anybody may want what they would publish.
Frames of clients are in `wire.client`; sockets and rights are in `veena.runtime.clients`.
May import: all rooms from wire to durable, and journal.
"""
