"""The plain side of the reading benchmark: `python -m veena.spark.bench.plain_socket ROWS BODY_BYTES BLOCK_ROWS`.

Prints its port and serves ranges of rows from memory, each connection one: frames of id, topic and body in blocks, the
length of a block before it, 0 at the end. Ranges begin and end with blocks. Ends when its standard input closes.
"""

from __future__ import annotations

import socketserver
import sys
import threading

from veena.spark.bench.read import FRAME, RANGE


def main(rows: int, body_bytes: int, block_rows: int) -> None:
    blocks = [_block(first, min(first + block_rows, rows), body_bytes) for first in range(0, rows, block_rows)]

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            start, end = RANGE.unpack(self.request.recv(RANGE.size, 0x100))  # MSG_WAITALL
            for number in range(start // block_rows, -(-end // block_rows)):
                block = blocks[number]
                self.request.sendall(len(block).to_bytes(4, "little") + block)
            self.request.sendall(bytes(4))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
        server.shutdown()


def _block(first: int, end: int, body_bytes: int) -> bytes:
    parts: list[bytes] = []
    for number in range(first, end):
        event_id, topic = b"bench:1:1:%d" % number, b"topic/%d" % (number % 1000)
        body = (b"%d " % number).ljust(body_bytes, b"x")
        parts += (FRAME.pack(len(event_id), len(topic), len(body)), event_id, topic, body)
    return b"".join(parts)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
