"""TLS and mTLS: who gets a connection, whom its certificate stands for, and certificates that change meanwhile."""

import json
import pathlib
import ssl
import subprocess
import os

import grpc
import pytest
from cryptography import x509

from berth.v1 import admin_pb2, admin_pb2_grpc
from berth.v1 import inference_pb2 as pb
from berth.v1 import inference_pb2_grpc
from berth_server import PATIENCE_S, Server, greedy, refused
from certificates import Authority, Pair
from policy_server import policy, sha256, start_with, wait_for_log

Code = grpc.StatusCode
TLS = "tls: {certificate: live/tls.crt, key: live/tls.key}"
MTLS = "tls: {certificate: live/tls.crt, key: live/tls.key, client_ca: ca.crt}"
KEY = "acme's secret"


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture
def folder(tmp_path, authority):
    """A server's files as Kubernetes mounts them: what is live is a link to a folder."""
    authority.issue("localhost").write(tmp_path / "one")
    (tmp_path / "live").symlink_to("one")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    return tmp_path


def swap(folder: pathlib.Path, target: str) -> None:
    (folder / "new").symlink_to(target)
    (folder / "new").rename(folder / "live")


@pytest.fixture
def start():
    servers = []

    def start_one(path, *flags) -> Server:
        servers.append(start_with(path, *flags))
        return servers[-1]

    yield start_one
    for server in servers:
        server.close()


def secure_channel(address: str, root: bytes, pair: Pair | None) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(root, pair.key_pem if pair else None, pair.pem if pair else None)
    return grpc.secure_channel(address, credentials, [("grpc.use_local_subchannel_pool", 1)])


class Client:
    def __init__(self, server: Server, root: bytes, pair: Pair | None = None):
        self.channel = secure_channel(server.info["grpc"], root, pair)
        self.stub = inference_pb2_grpc.InferenceStub(self.channel)

    def __enter__(self):
        return self.stub

    def __exit__(self, *_):
        self.channel.close()


def shown_certificate(server: Server) -> int:
    host, port = server.info["grpc"].rsplit(":", 1)
    return x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode()).serial_number


def serial(folder: pathlib.Path, name: str) -> int:
    return x509.load_pem_x509_certificate((folder / name / "tls.crt").read_bytes()).serial_number


def test_tls_is_for_those_who_speak_it_and_trust_the_authority(start, folder, authority):
    server = start(policy(folder, "", TLS))
    with Client(server, authority.pem) as stub:
        assert stub.Generate(greedy("hi", 2), timeout=PATIENCE_S).choices
    with Client(server, Authority("Somebody else").pem) as stub:
        assert refused(stub.Generate, greedy("hi", 2), timeout=PATIENCE_S).code == Code.UNAVAILABLE
    assert refused(server.generate, greedy("hi", 2)).code == Code.UNAVAILABLE
    assert server.terminate() == 0, server.stderr()
    assert "TLS" in server.stderr()


def test_a_client_certificate_is_its_tenants_credential(start, folder, authority):
    server = start(
        policy(
            folder,
            f"""
classes: {{interactive: {{kv_guarantee: 50%}}, batch: {{kv_guarantee: 50%}}}}
tenants:
  default: {{}}
  acme: {{subjects: ['CN=acme,O=Acme Corp'], api_key_sha256: [{{id: acme-1, sha256: {sha256(KEY)}}}]}}
  bert: {{classes: [batch], subjects: ['spiffe://here/bert']}}
""",
            MTLS + ", trusted_identity: {subjects: [CN=gateway]}",
        )
    )

    def ask(pair: Pair | None, tenant: str = "", metadata=()):
        request = greedy("hi", 2)
        request.tenant = tenant
        with Client(server, authority.pem, pair) as stub:
            return stub.Generate(request, metadata=metadata, timeout=PATIENCE_S)

    acme = authority.issue("acme", organization="Acme Corp")
    assert ask(acme)
    assert ask(acme, "acme")
    assert refused(ask, acme, "bert").reason == "TENANT_MISMATCH"
    bert = authority.issue("whatever", uri="spiffe://here/bert")
    assert refused(ask, bert).reason == "CLASS_NOT_ALLOWED"
    gateway = authority.issue("gateway")
    assert ask(gateway)
    assert ask(gateway, "acme")
    assert refused(ask, gateway, "bert").reason == "CLASS_NOT_ALLOWED"

    stranger = authority.issue("stranger")
    refusal = refused(ask, stranger)
    assert refusal.code == Code.UNAUTHENTICATED
    assert refusal.reason == "CREDENTIALS_INVALID"
    assert "CN=stranger" in refusal.message
    assert ask(stranger, "acme", [("x-api-key", KEY)]), "a key does as well"
    assert refused(ask, acme, "", [("x-api-key", "wrong")]).reason == "CREDENTIALS_INVALID"
    # Without a certificate of the authority there is no connection.
    assert refused(ask, None).code == Code.UNAVAILABLE
    assert refused(ask, Authority("Somebody else").issue("acme", organization="Acme Corp")).code == Code.UNAVAILABLE
    assert server.terminate() == 0, server.stderr()


def test_admin_over_tcp_is_for_its_subjects_alone_and_they_follow_a_reload(start, folder, authority):
    tenants = "tenants: {default: {}, acme: {subjects: [CN=acme]}}\n"
    of_root = MTLS + ", admin_subjects: [CN=root]"
    server = start(policy(folder, tenants, of_root), "--admin", "127.0.0.1:0")
    assert server.info["admin"].startswith("127.0.0.1:")

    def ask(pair: Pair | None):
        with secure_channel(server.info["admin"], authority.pem, pair) as channel:
            return admin_pb2_grpc.AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=PATIENCE_S)

    root, acme, deputy = (authority.issue(name) for name in ("root", "acme", "deputy"))
    assert ask(root).state == admin_pb2.SERVER_STATE_SERVING
    for other in (acme, deputy):
        refusal = refused(ask, other)
        assert (refusal.code, refusal.reason) == (Code.PERMISSION_DENIED, "ADMIN_REQUIRED")
    assert refused(ask, None).code == Code.UNAVAILABLE
    assert refused(ask, Authority("Somebody else").issue("root")).code == Code.UNAVAILABLE

    policy(folder, tenants, MTLS + ", admin_subjects: [CN=deputy]")
    wait_for_log(server, "policy reloaded")
    assert ask(deputy).state == admin_pb2.SERVER_STATE_SERVING
    assert refused(ask, root).reason == "ADMIN_REQUIRED"
    assert server.terminate() == 0, server.stderr()


def test_a_new_certificate_is_for_new_connections_and_streams_go_on(start, folder, authority):
    server = start(policy(folder, "", TLS))
    assert shown_certificate(server) == serial(folder, "one")
    with Client(server, authority.pem) as stub:
        stream = stub.GenerateStream(greedy("Once upon a time", 60, ignore_eos=True), timeout=PATIENCE_S)
        assert next(stream).WhichOneof("event") == "admitted"
        authority.issue("localhost").write(folder / "two")
        swap(folder, "two")
        wait_for_log(server, "policy reloaded")
        assert shown_certificate(server) == serial(folder, "two")
        assert list(stream)[-1].completed.usage.output_tokens == 60
        assert stub.Generate(greedy("hi", 2), timeout=PATIENCE_S).choices, "the old connection is still good"

    # A key of another certificate is refused, and all stays as it is.
    authority.issue("localhost").write(folder / "three")
    (folder / "three" / "tls.key").write_bytes((folder / "one" / "tls.key").read_bytes())
    swap(folder, "three")
    wait_for_log(server, "policy not reloaded")
    assert "server.tls.key" in server.stderr()
    assert shown_certificate(server) == serial(folder, "two")
    with Client(server, authority.pem) as stub:
        assert stub.Generate(greedy("hi", 2), timeout=PATIENCE_S).choices

    authority.issue("localhost").write(folder / "four")
    swap(folder, "four")
    wait_for_log(server, "policy reloaded", times=2)
    assert shown_certificate(server) == serial(folder, "four")
    assert server.terminate() == 0, server.stderr()


def test_a_new_authority_counts_for_new_connections(start, folder, authority):
    server = start(policy(folder, "", MTLS))
    next_authority = Authority("Next year's CA")
    client = next_authority.issue("client")
    with Client(server, authority.pem, client) as stub:
        assert refused(stub.Generate, greedy("hi", 2), timeout=PATIENCE_S).code == Code.UNAVAILABLE
    (folder / "ca.crt").write_bytes(authority.pem + next_authority.pem)
    wait_for_log(server, "policy reloaded")
    with Client(server, authority.pem, client) as stub:
        assert stub.Generate(greedy("hi", 2), timeout=PATIENCE_S).choices
    assert server.terminate() == 0, server.stderr()


def make_faulty(folder: pathlib.Path, authority: Authority, fault: str) -> str:
    """Spoils a file; what the one line about it says."""
    live = folder / "live"
    if fault == "missing":
        (live / "tls.crt").unlink()
        return "server.tls.certificate: cannot read"
    if fault == "mismatch":
        (live / "tls.key").write_bytes(authority.issue("other").key_pem)
        return "it is not the key of the certificate"
    if fault == "no certificate":
        (live / "tls.crt").write_text("nonsense")
        return "it holds no certificate in PEM"
    if fault == "damaged":
        pem = (live / "tls.crt").read_text().splitlines()
        (live / "tls.crt").write_text("\n".join([pem[0], "AAAA", *pem[2:]]) + "\n")
        return "it holds a certificate that is damaged"
    if fault == "no key":
        (live / "tls.key").write_bytes((live / "tls.crt").read_bytes())
        return "it holds no private key in PEM"
    if fault == "locked key":
        pair = authority.issue("localhost")
        (live / "tls.crt").write_bytes(pair.pem)
        (live / "tls.key").write_bytes(pair.locked_key(b"password"))
        return "it is encrypted"
    if fault == "empty":
        (live / "tls.key").write_text("")
        return "the file is empty"
    assert fault == "client_ca"
    (folder / "ca.crt").write_text("nonsense")
    return "server.tls.client_ca"


@pytest.mark.parametrize(
    "fault", ["missing", "mismatch", "no certificate", "damaged", "no key", "locked key", "empty", "client_ca"]
)
def test_bad_files_are_told_in_one_line_with_their_key(start, folder, authority, fault):
    expected = make_faulty(folder, authority, fault)
    path = policy(folder, "", MTLS)
    server = start(path)
    assert "grpc" not in server.info
    assert server.wait() == 2
    lines = [line for line in server.stderr().splitlines() if expected in line]
    assert len(lines) == 1, server.stderr()
    assert json.loads(lines[0])["msg"].startswith(f"{path}:2:"), "file, line and column"
    checked = subprocess.run([os.environ["BERTH_BINARY"], "check", str(path)], capture_output=True, text=True)
    # The machine that checks need not have the files of the one that serves.
    assert checked.returncode == (0 if fault in ("missing", "empty") else 2), checked.stderr
    assert expected in checked.stderr


def test_an_expired_certificate_is_a_warning(start, folder, authority):
    authority.issue("localhost", days=-1).write(folder / "old")
    swap(folder, "old")
    server = start(policy(folder, "", TLS))
    assert "grpc" in server.info, server.stderr()
    assert "expired at" in server.stderr()
    assert shown_certificate(server) == serial(folder, "old")
    assert server.terminate() == 0
