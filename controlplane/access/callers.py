"""Identify callers: a role and a name, for the whole cluster or for some jobs.

A certificate says it in a URI among its names: holdfast://CLUSTER/ROLE/NAME, with ?job=J for each job that it
is restricted to. A certificate without such a URI is not accepted, because its authority may sign for others
too. Where the authority signs for this cluster alone, the subject may say it instead: OU is the role, CN the
name.

The name of an agent may end in an asterisk: it then stands for every node whose name begins with the rest
(pods that share a secret)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from controlplane.settings import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEME = "holdfast"
ANY = "*"
"""At the end of an agent's name: any node whose name begins with the rest."""


class CallerRole(StrEnum):
    """The kinds of callers. access/roles.py lists what each may do."""

    OPERATOR = "operator"
    AGENT = "agent"
    VIEWER = "viewer"
    READER = "reader"  # a viewer who may read the logs of ranks too


class Unauthenticated(Exception):
    """The credentials do not show who calls. The message says which ones to bring."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Someone who may call. `role` None: the port authenticates nobody (loopback, or --insecure) and allows
    everything."""

    role: CallerRole | None
    name: str
    jobs: tuple[str, ...] = ()  # empty: every job
    by: str = "nothing"  # the credential, in words

    def may_touch(self, job: str) -> bool:
        """Return whether this job is one of the caller's. "" stands for the whole cluster, and belongs to no
        caller that is restricted to some jobs."""
        return not self.jobs or job in self.jobs

    def may_be(self, node: str) -> bool:
        """Return whether the caller may speak for this node: it is the node's agent, or nobody is
        authenticated."""
        if self.role is not CallerRole.AGENT:
            return self.role is None
        return node == self.name or (self.name.endswith(ANY) and node.startswith(self.name[: -len(ANY)]))

    def __str__(self) -> str:
        return f"{self.role or 'anyone'} {self.name}"


ANYONE = Caller(None, "on a port without authentication")


def from_certificate(cluster: str, peer: Mapping[str, Sequence[bytes]], *, subjects: bool = False) -> Caller:
    """Return the caller that grpc's auth context describes; by the subject only with `subjects`.

    Raises Unauthenticated; the message says how the certificate has to be made."""
    uris = [uri.decode("ascii", "replace") for uri in peer.get("peer_uri", ())]
    ours = [uri for uri in uris if uri.startswith(f"{SCHEME}://")]
    if len(ours) > 1:
        raise Unauthenticated(f"the certificate names {len(ours)} {SCHEME}:// URIs: give it one")
    if ours:
        return _from_uri(cluster, ours[0])
    subject = b"".join(peer.get("x509_subject", ())).decode("utf-8", "replace")
    if not subjects:
        raise Unauthenticated(
            f"the certificate {subject!r:.200} has no {SCHEME}:// URI, and its authority may sign for others "
            f"too: give it the URI {SCHEME}://{cluster}/ROLE/NAME; or, where that authority signs for this "
            "cluster only, start this daemon with --tls-own-authority"
        )
    return _from_subject(subject, peer)


def _from_uri(cluster: str, uri: str) -> Caller:
    remedy = f"give it the URI {SCHEME}://{cluster}/ROLE/NAME, ROLE one of {', '.join(CallerRole)}"
    bare, asks, query = uri.partition("?")
    try:
        of, path = _parts(bare)
    except ValueError as error:
        raise Unauthenticated(f"the certificate's URI {uri!r:.200} is invalid ({error}): {remedy}") from error
    words = path.split("/")
    if of != cluster:
        raise Unauthenticated(f"the certificate is of cluster {of!r:.80}, this is {cluster!r}: {remedy}")
    jobs = _jobs(uri, query) if asks else []
    if len(words) != 3:
        raise Unauthenticated(f"the certificate's URI {uri!r:.200} does not name a role and a name: {remedy}")
    return caller(words[1], words[2], jobs, f"certificate {words[2]}")


def _parts(bare: str) -> tuple[str, str]:
    if not bare.isprintable() or " " in bare or "#" in bare:
        raise ValueError("it has a space, a '#' or another character that is not allowed")
    parts = urlsplit(bare)
    return parts.netloc, parts.path


def _jobs(uri: str, query: str) -> list[str]:
    """Return the jobs that a URI's query names.

    An empty query or name is refused: it was meant to restrict the caller, and would restrict nothing."""
    pairs = [word.partition("=") for word in query.split("&")]
    if any(key != "job" or not job for key, _, job in pairs):
        raise Unauthenticated(
            f"the certificate's URI {uri!r:.200} has a query that names no job (is a variable of its "
            "template unset?): give each as ?job=NAME&job=NAME, or no '?' at all for every job"
        )
    return [job for _, _, job in pairs]


def _from_subject(subject: str, peer: Mapping[str, Sequence[bytes]]) -> Caller:
    if any(odd in subject for odd in '\\"+\n'):
        raise Unauthenticated(
            f"the certificate's subject {subject!r:.200} is ambiguous: give it a URI instead"
        )
    units = re.findall(r"(?:^|,)OU=([^,=+]*)(?=,|$)", subject)
    names = [name.decode("utf-8", "replace") for name in peer.get("x509_common_name", ())]
    if len(units) != 1 or len(names) != 1:
        raise Unauthenticated(
            f"the certificate {subject!r:.200} names no role: give it the URI {SCHEME}://CLUSTER/ROLE/NAME, "
            f"or one OU that is its role ({', '.join(CallerRole)}) and one CN that is its name"
        )
    return caller(units[0], names[0], [], f"certificate {names[0]}")


def caller(role: str, name: str, jobs: Sequence[str], by: str) -> Caller:
    """Return a caller made of these words. Raises Unauthenticated when one of them is invalid."""
    if role not in tuple(CallerRole):
        raise Unauthenticated(f"{role!r:.80} is not a role: the roles are {', '.join(CallerRole)}")
    begins = name.removesuffix(ANY) if role == CallerRole.AGENT and name != ANY else name
    named = [] if (role, name) == (CallerRole.AGENT, ANY) else [("name", begins)]
    for kind, word in (*named, *(("job", job) for job in jobs)):
        if not NAME.fullmatch(word):
            raise Unauthenticated(
                f"the {kind} {word!r:.80} is invalid: use letters, digits, '.', '_' and '-', 63 at most"
            )
    return Caller(CallerRole(role), name, tuple(jobs), by)
