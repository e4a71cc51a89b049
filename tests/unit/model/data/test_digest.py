import hashlib

import pytest

from arclog.model.data.digest import sha256


@pytest.mark.parametrize("size", [0, 1, 64, 65_535, 65_536, 65_537, 200_000])
def test_the_digest_is_that_of_hashlib(size):
    body = bytes(number % 251 for number in range(size))
    assert sha256(body) == hashlib.sha256(body).hexdigest()
