"""A server's TLS certificate: a configured one, or one generated at start. Floor 0.

Lives here: key and self-signed certificate as PEM text, and the TLS context of a server. Not here: the
servers (web, apiserver). cryptography is imported only to generate a certificate: that takes as long as a
scheduler's first hundred binds.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from gangsched.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName

# As client-go's GenerateSelfSignedCertKey: a process that runs longer is expected to restart in between.
VALID_DAYS = 365


class Pair(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


def self_signed(common_name: str, *, hosts: Sequence[str]) -> Pair:
    """A new key and its certificate for `hosts` (names and addresses), valid from an hour ago."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name[:64])])
    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        # Its own authority, so that a client needs only this file to trust it.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def _general_name(host: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def server_context(pair: Pair) -> ssl.SSLContext:
    """The TLS context of a server with this certificate."""
    context = _context()
    with _as_file(pair.certificate + pair.key) as path:
        context.load_cert_chain(path)
    return context


def server_context_from_files(certificate: str, key: str) -> ssl.SSLContext:
    """As server_context, from PEM files. Raises: ConfigError, naming the file."""
    for path in (certificate, key):
        try:
            with open(path, "rb"):
                pass
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", source=path) from None
    context = _context()
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        why = error.reason or str(error)
        raise ConfigError(
            f"no certificate that goes with the key in {key}: {why}", source=certificate
        ) from None
    return context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yields a path to read `data` from, once: OpenSSL's loader takes only paths. In memory if possible.

    So a key never reaches a disk, and a container needs no writable place.
    """
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("gangsched-tls")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="gangsched-tls-") as file:
        file.write(data)
        file.flush()
        yield file.name
