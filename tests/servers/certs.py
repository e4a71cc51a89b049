"""Certificates for servers of tests: an authority, and what it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


class Certificate(NamedTuple):
    """Files that `ssl` can load."""

    authority: Path
    chain: Path
    key: Path


def certificate(folder: Path, *names: str, expired: bool = False) -> Certificate:
    """A certificate for these names (default: localhost and 127.0.0.1), signed by an authority made for it."""
    folder.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    until = now - _DAY if expired else now + _DAY
    top_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    top_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    top = (
        _begun(top_name, top_name, top_key, now - 9 * _DAY, now + 9 * _DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(top_key, hashes.SHA256())
    )
    alternatives = [_name(name) for name in names or ("localhost", "127.0.0.1")]
    leaf = (
        _begun(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")]), top_name, key, now - 8 * _DAY, until)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(top_key, hashes.SHA256())
    )
    made = Certificate(folder / "authority.pem", folder / "chain.pem", folder / "key.pem")
    pem = serialization.Encoding.PEM
    made.authority.write_bytes(top.public_bytes(pem))
    made.chain.write_bytes(leaf.public_bytes(pem))
    made.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return made


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: dt.datetime,
    until: dt.datetime,
) -> x509.CertificateBuilder:  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
