"""Simulate a small Kubernetes API: TLS, a token, bodies checked by Kubernetes' own schemas, and failures on
demand."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import jsonschema

from tests.helm.chart import NEWEST
from tests.helm.schemas import check, check_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.security.authority import Authority

NAMESPACE = "train"
Object = dict[str, Any]


class Refused(Exception):
    """Answered with this status."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class FakeApi:
    """What the API holds, the requests that it got, and the failures that come next."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.account = folder / "account"
        self.account.mkdir()
        self.pods: dict[str, Object] = {}
        self.hosts: dict[str, Object] = {}
        self.events: dict[str, Object] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.deleted: list[tuple[str, Object]] = []
        self.changes: list[Object] = []
        self.troubles: list[Callable[[], None]] = []
        self.version = 100
        self.tokens = {"first"}
        self.changed = threading.Condition()
        self.over = False
        files = authority.issue("kubernetes")
        for name, text in (
            ("token", "first"),
            ("namespace", NAMESPACE),
            ("ca.crt", Path(files.ca).read_text()),
        ):
            (self.account / name).write_text(text)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.cert, files.key)
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port: int = self.server.server_address[1]

    @property
    def env(self) -> dict[str, str]:
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.port)}

    # ------------------------------------------------------------ what a test does to it

    def add_pod(
        self, name: str, address: str = "10.0.0.7", host: str = "host-1", app: str = "holdfast"
    ) -> Object:
        labels = {"app.kubernetes.io/name": app, "app.kubernetes.io/component": "trainer"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": str(uuid.uuid4()), "labels": labels},
            "spec": {"nodeName": host, "containers": [{"name": "trainer", "image": "i:1"}]},
            "status": {"podIP": address},
        }
        check(pod, NEWEST)
        self.pods[name] = pod
        self.hosts.setdefault(host, self._host(host))
        return pod

    def _host(self, name: str) -> Object:
        meta = {"name": name, "resourceVersion": str(self.version)}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}}

    def mark(self, name: str, **spec: Any) -> None:
        """Change a host's spec, and tell those who watch it."""
        with self.changed:
            self.version += 1
            host = self.hosts.setdefault(name, self._host(name))
            host["spec"] = {**host["spec"], **spec}
            host["metadata"]["resourceVersion"] = str(self.version)
            check(host, NEWEST)
            self._tell({"type": "MODIFIED", "object": host})

    def _tell(self, change: Object) -> None:
        self.changes.append(json.loads(json.dumps(change)))
        self.changed.notify_all()

    def fail(self, status: int, times: int = 1, **headers: str) -> None:
        """The next answers are this status."""

        def trouble() -> None:
            raise Refused(status, f"trouble {status}", **headers)

        self.troubles += [trouble] * times

    def slow(self, s: float) -> None:
        """The next answer takes so long."""
        self.troubles.append(lambda: time.sleep(s))

    def expire(self, successor: str) -> None:
        """Let the token expire. The file gets the next one later, by `renew`."""
        self.tokens = {successor}

    def renew(self, token: str) -> None:
        """Replace the file of the token by a new one, as the kubelet does."""
        fresh = self.account / "token.new"
        fresh.write_text(token)
        fresh.replace(self.account / "token")

    def count(self, method: str, path: str = "") -> int:
        return sum(1 for m, p, _ in self.asked if m == method and path in p)

    # ------------------------------------------------------------ what it answers

    def answer(self, method: str, path: str, token: str, body: Any, kind: str) -> Object:
        self.asked.append((method, path, body))
        if token.removeprefix("Bearer ") not in self.tokens:
            raise Refused(401, "Unauthorized")
        if self.troubles:
            self.troubles.pop(0)()
        words = urlsplit(path).path.strip("/").split("/")
        handler = _ROUTES.get((method, *_route(words)))
        if handler is None:
            raise Refused(403, f"forbidden: no role allows {method} {path}")
        if method == "PATCH" and kind != "application/merge-patch+json":
            raise Refused(415, f"{kind} is no patch")
        return handler(self, words, body)

    def get_pod(self, words: list[str], _body: Any) -> Object:
        if words[-1] not in self.pods:
            raise Refused(404, f'pods "{words[-1]}" not found')
        return self.pods[words[-1]]

    def label_pod(self, words: list[str], body: Any) -> Object:
        pod = self.get_pod(words, None)
        labels = {**pod["metadata"]["labels"], **body["metadata"]["labels"]}
        pod["metadata"]["labels"] = {key: value for key, value in labels.items() if value is not None}
        check(pod, NEWEST)
        return pod

    def delete_pod(self, words: list[str], body: Any) -> Object:
        check_options(body, NEWEST)
        pod = self.get_pod(words, None)
        if body.get("preconditions", {}).get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]:
            raise Refused(409, "the UID in the precondition does not match")
        self.deleted.append((words[-1], body))
        return self.pods.pop(words[-1])

    def patch_host(self, words: list[str], body: Any) -> Object:
        host = self.hosts[words[-1]]
        patched = {**host, "metadata": {**host["metadata"], **body.get("metadata", {})}}
        patched["spec"] = {**host["spec"], **body.get("spec", {})}
        check(patched, NEWEST)
        self.hosts[words[-1]] = patched
        self.mark(words[-1])
        return patched

    def list_hosts(self, _words: list[str], _body: Any) -> Object:
        meta = {"resourceVersion": str(self.version)}
        return {"apiVersion": "v1", "kind": "NodeList", "metadata": meta, "items": list(self.hosts.values())}

    def create_event(self, words: list[str], body: Any) -> Object:
        check(body, NEWEST)
        for name in ("reportingController", "reportingInstance", "action", "reason", "eventTime"):
            if not body.get(name):  # the API's own validation requires more than the schema
                raise Refused(422, f"{name}: Required value")
        if len(body["note"].encode()) > 1024 or len(body["reason"]) > 128 or len(body["action"]) > 128:
            raise Refused(422, "note can have at most 1024 bytes, reason and action 128 characters")
        if body["regarding"]["namespace"] != words[-2] != body["metadata"]["namespace"]:
            raise Refused(422, "involvedObject.namespace: does not match event.namespace")
        name = body["metadata"]["name"]
        if name in self.events:
            raise Refused(409, f'events "{name}" already exists')
        self.events[name] = body
        return dict(body)

    def patch_event(self, words: list[str], body: Any) -> Object:
        patched = {**self.events[words[-1]], **body}
        check(patched, NEWEST)
        self.events[words[-1]] = patched
        return patched


_POD = ("api", "v1", "namespaces", "*", "pods", "*")
_ROUTES: dict[tuple[str, ...], Callable[[FakeApi, list[str], Any], Object]] = {
    ("GET", *_POD): FakeApi.get_pod,
    ("DELETE", *_POD): FakeApi.delete_pod,
    ("PATCH", *_POD): FakeApi.label_pod,
    ("GET", "api", "v1", "nodes"): FakeApi.list_hosts,
    ("PATCH", "api", "v1", "nodes", "*"): FakeApi.patch_host,
    ("POST", "apis", "events.k8s.io", "v1", "namespaces", "*", "events"): FakeApi.create_event,
    ("PATCH", "apis", "events.k8s.io", "v1", "namespaces", "*", "events", "*"): FakeApi.patch_event,
}


def _route(words: list[str]) -> tuple[str, ...]:
    """The path with an asterisk in the place of each name."""
    named = [
        index + 1 for index, word in enumerate(words) if word in ("namespaces", "pods", "nodes", "events")
    ]
    return tuple("*" if index in named else word for index, word in enumerate(words))


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a client may hang up, or not trust the certificate."""


def _handler(api: FakeApi) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None: ...

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            token, kind = self.headers.get("Authorization", ""), self.headers.get("Content-Type", "")
            try:
                answer, status, more = api.answer(self.command, self.path, token, body, kind), 200, {}
                if parse_qs(urlsplit(self.path).query).get("watch"):
                    return self._watch()
            except Refused as refused:
                answer, status, more = _status(refused), refused.status, refused.headers
            except (jsonschema.ValidationError, KeyError, TypeError) as error:
                answer, status, more = _status(Refused(422, f"{error}"[:300])), 422, {}
            self._send(answer, status, more)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve

        def _send(self, answer: Object, status: int, more: dict[str, str]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **more}
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(content)

        def _watch(self) -> None:
            """Send the changes after the version that was asked for, until the test is over."""
            asked = int(parse_qs(urlsplit(self.path).query)["resourceVersion"][0])
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            told = 0
            self._chunk({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(asked)}}})
            while not api.over:
                with api.changed:
                    if not api.over and len(api.changes) == told:
                        api.changed.wait(0.1)
                    fresh, told = api.changes[told:], len(api.changes)
                for change in fresh:
                    version = int(change["object"].get("metadata", {}).get("resourceVersion", asked + 1))
                    if version > asked:
                        self._chunk(change)
                    if change["type"] in ("ERROR", "CLOSE"):
                        self.close_connection = True
                        return

        def _chunk(self, change: Object) -> None:
            line = json.dumps(change).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()

    return Handler


def _status(refused: Refused) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": str(refused),
        "code": refused.status,
    }


@contextmanager
def fake_api(folder: Path, authority: Authority) -> Iterator[FakeApi]:
    """A FakeApi that serves until the end of the block."""
    api = FakeApi(folder, authority)
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield api
    finally:
        api.over = True
        with api.changed:
            api.changed.notify_all()
        api.server.shutdown()
        api.server.server_close()
        thread.join()
