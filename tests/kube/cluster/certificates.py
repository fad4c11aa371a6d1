"""The certificate authority of one test cluster, and the kubeconfig files of who speaks to its API server."""

import base64
import ipaddress
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = timedelta(days=30)
_SLACK = timedelta(hours=1)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


class Authority:
    """Signs certificates into a folder: NAME.crt and NAME.key; its own is ca.crt."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        built = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
        )
        self._write_certificate("ca", built)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SLACK)
            .not_valid_after(now + _VALID)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )

    def _write_certificate(self, name: str, builder: x509.CertificateBuilder) -> None:
        certificate = builder.sign(self._key, hashes.SHA256())
        _write(self.folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, user: str, group: str | None = None, hosts: Sequence[str] = ()) -> None:
        """Sign a certificate for a client (`user` in `group`), or a server known by `hosts`: names or addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        words = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            words.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = self._builder(x509.Name(words), key.public_key()).add_extension(
            x509.ExtendedKeyUsage(usages), critical=False
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        _write(self.folder / f"{name}.key", _pem(key))
        self._write_certificate(name, builder)

    def signing_keys(self, name: str) -> None:
        """Write a key pair for tokens: NAME.key and NAME.pub."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _write(self.folder / f"{name}.key", _pem(key))
        _write(self.folder / f"{name}.pub", public)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def write_kubeconfig(path: Path, server: str, folder: Path, name: str) -> Path:
    """Write a kubeconfig (JSON is YAML) that needs no other file: its user has the certificate NAME of `folder`."""

    def inline(file: str) -> str:
        return base64.b64encode((folder / file).read_bytes()).decode()

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": inline("ca.crt")}}],
        "users": [
            {
                "name": name,
                "user": {"client-certificate-data": inline(f"{name}.crt"), "client-key-data": inline(f"{name}.key")},
            }
        ],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        "current-context": "test",
    }
    return _write(path, json.dumps(config, indent=1).encode())
