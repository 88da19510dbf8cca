"""A real S3 server of its own (moto), behind a proxy that can go away, come back and count."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyarrow import fs

BUCKET = "speech"
_START_S = 60.0
_WRITES = re.compile(rb"(?:PUT|POST|DELETE) /" + BUCKET.encode() + rb"/([^ ?]*)[^ ]* HTTP/1.1\r\n")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Proxy:
    """Passes bytes on to the server; `stop` is what a server that died looks like."""

    def __init__(self, to_port: int) -> None:
        self.port = free_port()
        self.written: list[str] = []  # keys of requests that write, as they were sent
        self._to_port = to_port
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.start()

    def start(self) -> None:
        """Accept connections, again."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections, and cut those that are open."""
        with contextlib.suppress(OSError):  # wakes the thread that waits for connections
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to_port))
            except OSError:
                return
            with self._lock:
                self._open |= {client, server}
            for a, b, is_up in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(a, b, is_up), daemon=True).start()

    def _pass_on(self, a: socket.socket, b: socket.socket, is_up: bool) -> None:
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                if is_up:
                    self.written += [key.decode() for key in _WRITES.findall(data)]
                b.sendall(data)
        for connection in (a, b):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {a, b}
        a.close()


@dataclass
class S3:
    """The server, and what tests ask of it."""

    process: subprocess.Popen[bytes]
    proxy: Proxy
    files: fs.S3FileSystem = field(init=False)  # past the proxy
    num_folders: int = 0

    def connect(self, port: int) -> None:
        self.files = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        self.files.create_dir(BUCKET)

    def new_out(self) -> str:
        """The URI of a folder that nobody has used."""
        self.num_folders += 1
        query = f"endpoint_override=127.0.0.1:{self.proxy.port}&scheme=http&region=us-east-1"
        return f"s3://{BUCKET}/runs/{self.num_folders}?{query}"

    def objects(self, out: str) -> dict[str, tuple[int, object]]:
        """(size, time) of every object of an OUT, by its name below it."""
        top = path_of(out)
        found = self.files.get_file_info(fs.FileSelector(top, recursive=True, allow_not_found=True))
        return {i.path.removeprefix(f"{top}/"): (i.size, i.mtime) for i in found if i.is_file}

    def read(self, out: str, name: str) -> bytes:
        with self.files.open_input_stream(f"{path_of(out)}/{name}") as stream:
            return stream.read()

    def write(self, out: str, name: str, data: bytes) -> None:
        with self.files.open_output_stream(f"{path_of(out)}/{name}") as stream:
            stream.write(data)

    def remove(self, out: str, name: str) -> None:
        self.files.delete_file(f"{path_of(out)}/{name}")

    def written(self, out: str) -> list[str]:
        """Names below OUT of the writing requests since the last call, those of the lock left out.

        A name that ends in `/` is a folder's mark, which pyarrow puts after it removes an object.
        """
        top = path_of(out).removeprefix(f"{BUCKET}/") + "/"
        keys, self.proxy.written = self.proxy.written, []
        names = [k.removeprefix(top) for k in keys if k.startswith(top) and not k.endswith("/")]
        return [n for n in names if not n.startswith(("ledger/writer", "ledger/clock"))]


def path_of(uri: str) -> str:
    return uri.removeprefix("s3://").partition("?")[0]


@contextlib.contextmanager
def serving() -> Iterator[S3]:
    """A server with an empty bucket; credentials are in the environment."""
    port = free_port()
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "moto.server",
        "-H",
        "127.0.0.1",
        "-p",
        f"{port}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            assert process.poll() is None, "the S3 server did not start"
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(0.05)
        server = S3(process, Proxy(port))
        server.connect(port)
        yield server
        server.proxy.stop()
    finally:
        process.kill()
        process.wait()
