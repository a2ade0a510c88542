"""A certificate authority for tests: certificates of any name, any lifetime, for servers and for clients."""

from __future__ import annotations

import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Authority:
    """Signs what it is asked to; `certificate` is what those trust who trust it (PEM)."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        made = self._sign(self._name, self._key, lifetime_s=86400.0, is_authority=True)
        self.certificate = made.decode()

    def _sign(
        self,
        subject: x509.Name,
        key: Key,
        *,
        lifetime_s: float,
        is_authority: bool = False,
        names: tuple[x509.GeneralName, ...] = (),
    ) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(seconds=lifetime_s))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(
        self, directory: Path, name: str, *, group: str = "", lifetime_s: float = 3600.0, as_files: str = ""
    ) -> tuple[Path, Path]:
        """Certificate and key for loopback, put in the place of files of that name, as a rotation does."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = (x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost"))
        certificate = self._sign(_name(name, group), key, lifetime_s=lifetime_s, names=names)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        paths = (directory / f"{as_files or name}.crt", directory / f"{as_files or name}.key")
        for path, data in zip(paths, (certificate, pem), strict=True):
            replace(path, data)
        return paths


def _name(name: str, group: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if group:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def replace(path: Path, data: bytes | str) -> None:
    """Put the file there in one step: readers find the old one or the new one."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(data if isinstance(data, bytes) else data.encode())
    os.replace(beside, path)


def server_context(files: tuple[Path, Path], *, clients: Path | None = None) -> ssl.SSLContext:
    """Of a server that shows this certificate, and asks for one signed by `clients`, if its client has it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
