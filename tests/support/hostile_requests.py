"""What is no request, or nearly one: as anybody may send it to a port."""

import socket

REQUESTS = {
    "no HTTP": b"\0\1\2\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a long line": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
    "a long header": b"GET / HTTP/1.1\r\nX: " + b"a" * 20000 + b"\r\n\r\n",
    "a length below nothing": b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "no chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "bytes in a path": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes in a token": b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\n\r\n",
    "a zero in a token": b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\0b\r\n\r\n",
    "bytes in Expect": b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nExpect: \xff\r\nContent-Length: 1\r\n\r\na",
    "bytes in Content-Encoding": b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Encoding: \xff\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "no address": b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
}


def sent(address, data):
    """The first line of the answer to some bytes."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(data)
        return connection.recv(300).split(b"\r\n")[0].decode()
