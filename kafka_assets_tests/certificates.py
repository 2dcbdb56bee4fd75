"""A certificate authority of the tests' own, in a folder."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

SECRET = b"secret"


class Authority:
    """Writes `NAME.pem`; whom it issues to gets NAME.pem, NAME-key.pem, NAME-encrypted.pem and NAME.p12."""

    def __init__(self, folder: Path, *, name: str = "ca") -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
        usage = x509.BasicConstraints(ca=True, path_length=0)
        self.certificate = self._sign(self.name, self.key.public_key(), usage)
        (folder / f"{name}.pem").write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(self, name: str, *, host: str | None = None) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = [x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])] if host else []
        certificate = self._sign(_name(name), key.public_key(), *hosts)
        (self.folder / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        for kind, protection in (("key", NoEncryption()), ("encrypted", BestAvailableEncryption(SECRET))):
            text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
            (self.folder / f"{name}-{kind}.pem").write_bytes(text)
        bundle = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, [self.certificate], BestAvailableEncryption(SECRET)
        )
        (self.folder / f"{name}.p12").write_bytes(bundle)

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            issuer_name=self.name,
            subject_name=subject,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - datetime.timedelta(hours=1),
            not_valid_after=now + datetime.timedelta(days=1),
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self.key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
