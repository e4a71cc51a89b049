"""What the client's connections do beside speaking HTTP: a request that ends early must not harm those around it.

Law: bytes behind an HTTP/1.1 answer are never taken for the next one; an HTTP/2 request that is abandoned is reset, and what
came for it is given back to the connection's window; what breaks HTTP/2 is an error of the client's at any time. The base
classes do none of it, and have no public place for it: the names with an underscore here are theirs, and tests fail when
they change.
"""

from __future__ import annotations

from typing import Any

import httpcore2

#: A connection that cannot even take a reset for so long is about to be found out by others.
_RESET_S = 1.0


class Http11(httpcore2.AsyncHTTP11Connection):
    """One request at a time."""

    def has_expired(self) -> bool:
        return bool(self._h11_state.trailing_data[0]) or super().has_expired()


class Http2(httpcore2.AsyncHTTP2Connection):
    """Many requests at a time, of many tasks."""

    async def _read_incoming_data(self, request: httpcore2.Request) -> list[Any]:
        """The base translates what breaks the protocol only until an answer's head has come."""
        from h2.exceptions import ProtocolError

        try:
            return await super()._read_incoming_data(request)
        except ProtocolError as broken:
            self._connection_error = True
            raise httpcore2.RemoteProtocolError(str(broken)) from None

    async def _response_closed(self, stream_id: int) -> None:
        self._give_up(stream_id)
        data = self._h2_state.data_to_send()
        if data and not self.is_closed():
            try:
                await self._network_stream.write(data, _RESET_S)
            except (httpcore2.WriteError, httpcore2.WriteTimeout):
                self._connection_error = True
        await super()._response_closed(stream_id)

    def _give_up(self, stream_id: int) -> None:
        """Reset a stream that has not ended."""
        from h2.errors import ErrorCodes
        from h2.events import DataReceived
        from h2.exceptions import ProtocolError

        try:
            for event in self._events.get(stream_id, ()):
                if isinstance(event, DataReceived):
                    self._h2_state.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
            self._h2_state.reset_stream(stream_id, ErrorCodes.CANCEL)
        except ProtocolError:
            pass  # it has ended, or the connection has


class Connection(httpcore2.AsyncHTTPConnection):
    """Connects, and speaks what the server chose."""

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        try:
            async with self._request_lock:
                if self._connection is None:
                    stream = await self._connect(request)
                    tls = stream.get_extra_info("ssl_object")
                    chosen = Http2 if tls is not None and tls.selected_alpn_protocol() == "h2" else Http11
                    self._connection = chosen(
                        origin=self._origin, stream=stream, keepalive_expiry=self._keepalive_expiry
                    )
        except BaseException:
            self._connect_failed = True
            raise
        return await self._connection.handle_async_request(request)


class Pool(httpcore2.AsyncConnectionPool):
    """Connections of the kind above; those through a proxy are the base's."""

    def create_connection(self, origin: httpcore2.Origin) -> httpcore2.AsyncConnectionInterface:
        if self._proxy is not None:
            return super().create_connection(origin)
        return Connection(
            origin=origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=self._keepalive_expiry,
            http2=True,
            network_backend=self._network_backend,
        )
