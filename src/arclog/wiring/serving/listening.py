"""The socket that a server listens on."""

from __future__ import annotations

import logging
import resource
import socket

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError

log = logging.getLogger("arclog.server")

#: Files that a server has open beside its connections: the store, workers' pipes, what tasks use.
OTHER_FILES = 1000
#: Connections that may wait to be accepted.
BACKLOG = 2048


def allow_files(settings: Settings) -> None:
    """Let this process open as many files as its connections take, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.integer("server.max_connections") + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            log.warning(
                "this process may open %d files, and server.max_connections is %d; allow it more (ulimit -n, LimitNOFILE), "
                "or lower the setting",
                most,
                settings.integer("server.max_connections"),
            )


def listen(settings: Settings) -> socket.socket:
    """The socket, bound before anything else is opened: a taken port is known at once."""
    return _bound(settings, settings.integer("server.port"), shared=False)


def listen_shared(settings: Settings, count: int) -> list[socket.socket]:
    """Sockets on one address, among which the kernel shares out connections."""
    # A port that another such group has could be shared with it: whether it is free is asked by a socket of the plain kind.
    with listen(settings) as probe:
        port = probe.getsockname()[1]
    return [_bound(settings, port, shared=True) for _ in range(count)]


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bound(settings: Settings, port: int, *, shared: bool) -> socket.socket:
    host = settings.text("server.host")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio turns Nagle's algorithm off only where the protocol is named: else a small answer waits 40 ms.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as problem:
        raise SettingsError(
            f"cannot listen on {host}:{port}: {problem.strerror or problem}; stop what listens there, or choose "
            "another port (--port, ARCLOG_SERVER_PORT; 0 takes a free one)"
        ) from None
    return listener
