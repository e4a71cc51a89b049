"""An issuer of tokens for tests: keys of its own, and a JWKS in a file or on a free loopback port."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "arclog"


class Issuer:
    """Signs, and publishes what it signs with."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, Any]] = {}
        self.fetched = 0

    def add(self, kid: str, algorithm: str = "ES256") -> None:
        made: dict[str, Any] = {
            "RS256": lambda: rsa.generate_private_key(65537, 2048),
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }
        self.keys[kid] = (algorithm, made[algorithm]())

    def token(self, kid: str, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A good token, but for the claims that are given; a claim that is None is left out."""
        algorithm, key = self.keys[kid]
        body = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "ada",
            "exp": int(time.time()) + 600,
            "tenant": "acme",
            "roles": ["operator"],
            **claims,
        }
        body = {name: value for name, value in body.items() if value is not None}
        return jwt.encode(body, key, algorithm, headers={"kid": kid, **(header or {})})

    def jwks(self) -> dict[str, Any]:
        algorithms: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}
        return {
            "keys": [
                {**algorithms[algorithm].to_jwk(key.public_key(), as_dict=True), "kid": kid}
                for kid, (algorithm, key) in self.keys.items()
            ]
        }

    @asynccontextmanager
    async def published(self) -> AsyncIterator[str]:
        """The address of its JWKS, as it is at each request."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            self.fetched += 1
            body = json.dumps(self.jwks()).encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/jwks"
        finally:
            server.close()
            await server.wait_closed()
