"""One unary gRPC call in plain HTTP/2 frames: for what gRPC's own clients keep from their callers."""

import socket
import struct

SETTINGS, RST_STREAM, HEADERS, DATA = 4, 3, 1, 0
END_STREAM, END_HEADERS = 1, 4
CANCEL = 8
# The peer may send "-bin" metadata as it is, with a zero byte before it (gRPC's own setting).
ALLOW_TRUE_BINARY_METADATA = 0xFE03


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    assert len(name) < 127 and len(value) < 127
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        assert part, "the server closed the connection"
        data += part
    return data


def _opening(address: str, method: str, settings: bytes) -> bytes:
    """The connection's first frames, and the headers of its first call."""
    headers = b"".join(
        _literal(name, value)
        for name, value in ((b":method", b"POST"), (b":scheme", b"http"), (b":path", method.encode()),
                            (b":authority", address.encode()), (b"te", b"trailers"),
                            (b"content-type", b"application/grpc")))
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, 0, 0, settings) + _frame(HEADERS, END_HEADERS, 1, headers)


def _message(request: bytes) -> bytes:
    return struct.pack(">BI", 0, len(request)) + request


def _connect(address: str, timeout: float) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=timeout)


def reset_in_mid_message(address: str, method: str, request: bytes, timeout: float) -> None:
    """A call that its client gives up when half of its message is sent."""
    message = _message(request)
    with _connect(address, timeout) as connection:
        connection.sendall(
            _opening(address, method, b"") + _frame(DATA, 0, 1, message[:len(message) // 2]) +
            _frame(RST_STREAM, 0, 1, struct.pack(">I", CANCEL)))
        # The server has read all of it when it answers the settings that came first, and all came at once.
        _read(connection, 9)


def header_blocks(address: str, method: str, request: bytes, timeout: float) -> list[bytes]:
    """What the server sends but messages: headers and trailers, or trailers alone."""
    with _connect(address, timeout) as connection:
        connection.sendall(
            _opening(address, method, struct.pack(">HI", ALLOW_TRUE_BINARY_METADATA, 1)) +
            _frame(DATA, END_STREAM, 1, _message(request)))
        blocks = []
        while True:
            head = _read(connection, 9)
            payload = _read(connection, int.from_bytes(head[:3], "big"))
            if head[3] == HEADERS:
                blocks.append(payload)
                if head[4] & END_STREAM:
                    return blocks


def binary_value(block: bytes, key: bytes) -> bytes:
    """The value of a "-bin" key, as the server sends it for the first time on a connection."""
    at = block.index(key) + len(key)
    length = block[at]
    assert length < 127, "neither compressed nor long"
    assert block[at + 1] == 0
    return block[at + 2:at + 1 + length]
