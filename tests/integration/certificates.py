"""Certificates of a test's own authority."""

import datetime
import ipaddress
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Pair:
    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey):
        self.certificate = certificate
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        self._key = key
        self.key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def locked_key(self, password: bytes) -> bytes:
        return self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password),
        )

    def write(self, folder: pathlib.Path) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "tls.crt").write_bytes(self.pem)
        (folder / "tls.key").write_bytes(self.key_pem)


class Authority:
    def __init__(self, name: str = "Test CA"):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.pem = self._sign(self._name, self._key, []).pem

    def issue(self, name: str, organization: str = "", uri: str = "", days: int = 1) -> Pair:
        """Valid from a month ago until `days` from now."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
        names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        if uri:
            names.append(x509.UniformResourceIdentifier(uri))
        return self._sign(x509.Name(attributes), ec.generate_private_key(ec.SECP256R1()), names, days)

    def _sign(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, names: list, days: int = 1) -> Pair:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=30))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Pair(builder.sign(self._key, hashes.SHA256()), key)
