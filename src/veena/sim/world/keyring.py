"""The keys of a simulated network that signs: one for each broker, made from the seed. The signatures are real.

What stands for a certificate is the public key. There is no authority: the ring knows which key belongs to which
address, as an authority's grants would say, so a broker that is let in under a new address has its key there at once.

The ring notes what each broker signs, so that a judge can ask whether a broker ever said what others believe.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from veena.address import Address, format_address
from veena.core.boundary.signing import Fault, FaultCode, Signing
from veena.core.wire.signatures import Credential, Signature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class KeyRing:
    """The keys of all brokers, and who has signed what."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._keys: dict[Address, Ed25519PrivateKey] = {}
        self._public: dict[Address, bytes] = {}
        #: Hashes of everything that the owner of a key has signed, by address.
        self._signed: dict[Address, set[bytes]] = {}
        #: Signatures that were checked.
        self.checks = 0

    def signing(self, address: Address) -> Signing:
        """What a broker at this address signs and checks with."""
        return Signing(_KeySigner(self, address), _KeyVerifier(self))

    def sign(self, address: Address, statement: bytes) -> bytes:
        self._signed.setdefault(address, set()).add(_hash(statement))
        return self._key(address).sign(statement)

    def forged(self, address: Address, statement: bytes) -> bytes:
        """The signature of a liar, which is not noted: it is for what the liar may not say."""
        return self._key(address).sign(statement)

    def has_signed(self, address: Address, statement: bytes) -> bool:
        return _hash(statement) in self._signed.get(address, ())

    def public_key(self, address: Address) -> bytes:
        if address not in self._public:
            self._public[address] = self._key(address).public_key().public_bytes_raw()
        return self._public[address]

    def _key(self, address: Address) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if address not in self._keys:
            drawn = blake2b(bytes(address), digest_size=32, key=str(self._seed).encode()[:64], person=b"veena-keyring")
            self._keys[address] = Ed25519PrivateKey.from_private_bytes(drawn.digest())
        return self._keys[address]


class _KeySigner:
    def __init__(self, ring: KeyRing, address: Address) -> None:
        self._ring, self._address = ring, address

    @property
    def certificate(self) -> bytes:
        return self._ring.public_key(self._address)

    def sign(self, statement: bytes) -> bytes:
        return self._ring.sign(self._address, statement)


class _KeyVerifier:
    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    def why_not(self, credential: Credential, signature: Signature, statement: bytes, wall_ns: int) -> Fault | None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        del wall_ns  # keys of a simulation do not expire
        self._ring.checks += 1
        if credential.certificate != self._ring.public_key(signature.signer):
            return Fault(FaultCode.FORGED, f"its key is not that of {format_address(signature.signer)}", is_plain=True)
        try:
            Ed25519PublicKey.from_public_bytes(credential.certificate).verify(signature.data, statement)
        except InvalidSignature:
            return Fault(FaultCode.FORGED, "its signature does not fit", is_plain=True)
        return None


def _hash(statement: bytes) -> bytes:
    return blake2b(statement, digest_size=16).digest()
