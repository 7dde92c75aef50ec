"""Certificates and keys for a federation on this machine: an authority, a server that it vouches for, keys of nodes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 30


class Authority(NamedTuple):
    """Files that a SuperLink is started with; nodes and users need ``ca`` alone."""

    ca: Path
    certificate: Path
    key: Path


class NodeKey(NamedTuple):
    """Files of a node: ``public`` is registered with the SuperLink, ``private`` stays with the node."""

    private: Path
    public: Path


def authority(
    folder: Path, names: Sequence[str] = ("localhost",), addresses: Sequence[str] = ("127.0.0.1", "::1")
) -> Authority:
    """Make an authority, and a server certificate for these names and addresses; the authority's key is not kept.

    Valid for ``DAYS`` days from a day ago, so that clocks may differ. Keys are ECDSA on P-256.
    """
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, server_name = _name("equipoise flower up"), _name(names[0])
    ca_id = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .add_extension(ca_id, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    alternatives = [*map(x509.DNSName, names), *(x509.IPAddress(ip_address(a)) for a in addresses)]
    server = (
        _certificate(server_name, ca_name, server_key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(server_key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_id), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    made = Authority(folder / "ca.crt", folder / "server.pem", folder / "server.key")
    made.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    made.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_private(made.key, server_key, serialization.PrivateFormat.PKCS8)
    return made


def node_key(folder: Path, name: str) -> NodeKey:
    """Make a node's key pair as Flower reads it: ECDSA on P-384, in OpenSSH's format."""
    key = ec.generate_private_key(ec.SECP384R1())
    made = NodeKey(folder / name, folder / f"{name}.pub")
    _write_private(made.private, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    made.public.write_bytes(public + b"\n")
    return made


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=DAYS))
    )


def _usage(ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    path.touch(mode=0o600)  # before there is anything to read in it
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
