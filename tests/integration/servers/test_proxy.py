"""The network that tests cut is itself right: what each mode lets through, holds and resets."""

import contextlib
import socket
import threading

import pytest

from tests.servers.proxy import Mode, Proxy


class Echo:
    """Answers with what it is told, and keeps it."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard = threading.Semaphore(0)
        self.taken = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.taken.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, one):
        try:
            while data := one.recv(1000):
                self.heard.release()
                one.sendall(data)
        except OSError:
            pass

    def close(self):
        with contextlib.suppress(OSError):  # closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.taken:
            connection.close()


@pytest.fixture
def echo():
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def proxy(echo):
    proxy = Proxy(echo.port)
    yield proxy
    proxy.close()


@pytest.fixture
def client(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as connection:
        assert sent(connection, b"first") == b"first"
        yield connection


def sent(client, data):
    client.sendall(data)
    return client.recv(1000)


def answer_to(port, data):
    """On a connection of its own; nothing when that is ended."""
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            return sent(connection, data)
    except ConnectionError:
        return b""


def quiet(client, seconds=0.1):
    """Nothing comes, though there was time."""
    client.settimeout(seconds)
    try:
        with pytest.raises(TimeoutError):
            client.recv(1000)
    finally:
        client.settimeout(60)
    return True


@pytest.mark.parametrize("mode", [Mode.PASS, Mode.SLOW])
def test_what_passes_arrives(proxy, client, mode):
    proxy.be(mode)
    assert sent(client, b"second") == b"second"


def test_a_black_hole_holds_what_is_said_until_it_is_gone(proxy, echo, client):
    proxy.be(Mode.BLACK_HOLE)
    client.sendall(b"late")
    assert quiet(client)
    assert echo.heard._value == 1
    proxy.be(Mode.PASS)
    assert client.recv(1000) == b"late"


def test_a_black_hole_takes_connections_and_leads_them_nowhere(proxy, echo):
    proxy.be(Mode.BLACK_HOLE)
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as client:
        client.sendall(b"late")
        assert quiet(client)
        assert not echo.taken
        proxy.be(Mode.PASS)
        assert client.recv(1000) == b"late"


def test_only_there_delivers_and_holds_the_answer(proxy, echo, client):
    echo.heard.acquire()
    proxy.be(Mode.ONLY_THERE)
    client.sendall(b"there")
    assert echo.heard.acquire(timeout=60)
    assert quiet(client)
    proxy.be(Mode.PASS)
    assert client.recv(1000) == b"there"


def test_only_back_delivers_what_the_server_says(proxy, echo, client):
    proxy.be(Mode.ONLY_BACK)
    echo.taken[0].sendall(b"news")
    assert client.recv(1000) == b"news"
    client.sendall(b"held")
    assert quiet(client)


def test_reset_ends_what_is_open_and_what_comes(proxy, echo, client):
    proxy.be(Mode.RESET)
    with pytest.raises(ConnectionResetError):
        client.recv(1000)
    assert answer_to(proxy.port, b"x") == b""
    proxy.be(Mode.PASS)
    assert answer_to(proxy.port, b"whole") == b"whole"


def test_what_was_held_is_lost_with_its_connection(proxy, echo, client):
    echo.heard.acquire()
    proxy.be(Mode.BLACK_HOLE)
    client.sendall(b"lost")
    proxy.drop()
    with pytest.raises(ConnectionResetError):
        client.recv(1000)
    proxy.be(Mode.PASS)
    assert not echo.heard.acquire(blocking=False)


def test_a_server_that_is_gone_is_a_reset(proxy, echo):
    assert answer_to(proxy.port, b"x") == b"x"
    echo.close()
    assert answer_to(proxy.port, b"x") == b""


def test_words_that_pass_cut_their_own_answer_off(proxy, echo, client):
    proxy.cut_at(b"cut here", Mode.ONLY_THERE)
    assert sent(client, b"before cut") == b"before cut"
    while echo.heard.acquire(blocking=False):
        pass
    client.sendall(b" here")  # the words came in two pieces
    assert echo.heard.acquire(timeout=60)
    assert proxy.mode is Mode.ONLY_THERE
    assert quiet(client)
    proxy.be(Mode.PASS)
    assert client.recv(1000) == b" here"
