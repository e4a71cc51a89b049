"""The rules of `arclog.ports.secrets.SecretBook` as tests, for every store that several servers share.

    class TestMyStore(SecretsContract):
        @pytest.fixture
        def make_books(self):
            return lambda: (MyStore(url), MyStore(url))

The two are those of two servers: what one does, the other sees.
"""

from arclog.testing.conformance.secrets.keeping import Book, MakeBooks, SecretsContract

__all__ = ["Book", "MakeBooks", "SecretsContract"]
