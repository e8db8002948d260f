"""What the authority of a network says of brokers: certificates, and signatures that they and it make.

`keys` loads private keys, and signs and verifies bytes for a purpose; `broker_certificate` verifies a certificate that
came outside of a handshake of TLS.
A handshake is verified in `transports.tls`; who may be a neighbour is decided in `links.trust`.
May import: supervision, logging, networks, transports.
"""
