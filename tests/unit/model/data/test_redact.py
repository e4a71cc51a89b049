"""Redaction: no spelling of a secret gets through, in one piece or in many, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import time
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from arclog.model.data.redact import Redactor, mask

CANARY = "kA7 /+&=%\"'\\<é✓\U0001f511}z9Q"
SECRETS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=8, max_size=40).filter(
    lambda text: len(text.strip()) >= 8 and len(text.splitlines()) == 1
)
AROUND = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def redactor(*secrets: str) -> Redactor:
    return Redactor({secret: f"s{index}" for index, secret in enumerate(secrets)})


def spellings(secret: str) -> list[str]:
    """The secret as programs write it."""
    raw = secret.encode()
    result = [secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
    result += [json.dumps(json.dumps(secret))[3:-3], repr(secret)[1:-1], repr(raw)[2:-1], html.escape(secret)]
    result += [quote(secret), quote(secret, safe=""), quote(secret, safe="~!*'()"), quote_plus(secret)]
    result += [quote(secret, safe="").lower() if secret.islower() else quote(secret, safe="/:?")]
    result += [
        urlencode({"q": secret})[2:],
        quote(quote(secret, safe=""), safe=""),
        quote(quote_plus(secret)),
        shlex.quote(secret),
    ]
    for before in (b"", b"u", b"u:"):
        for behind in (b"", b"x", b"xy"):
            body = before + raw + behind
            standard, url = base64.b64encode(body).decode(), base64.urlsafe_b64encode(body).decode()
            result += [standard, standard.rstrip("="), url, url.rstrip("="), quote(standard, safe="")]
    return result


@given(SECRETS, AROUND, AROUND)
@example(CANARY, "", "")
@example("\\\\\\\\abc\\", "", '"')
def test_no_spelling_of_a_secret_gets_through(secret, before, behind):
    clean = redactor(secret)
    for spelt in spellings(secret):
        text = clean.text(f"{before} {spelt} {behind}")
        assert spelt not in text
        assert "[redacted:s0]" in text


@settings(max_examples=20)
@given(SECRETS, st.binary(max_size=60), st.binary(max_size=60), st.integers(1, 9))
@example(CANARY, b"a", b"b", 1)
def test_a_stream_gives_the_same_whatever_the_pieces(secret, before, behind, size):
    for spelt in spellings(secret):
        body = before + spelt.encode() + b" " + behind
        stream = redactor(secret, "another one 77").stream()
        out = b"".join(stream.feed(body[at : at + size]) for at in range(0, len(body), size)) + stream.end()
        assert out == redactor(secret, "another one 77").bytes(body)
        assert spelt.encode() not in out


def test_all_of_a_base64_text_goes_that_tells_of_the_secret():
    """The characters at its borders hold some of its bits."""
    assert redactor("s3cret-word").text(base64.b64encode(b"s3cret-word").decode()) == "[redacted:s0]"
    assert (
        redactor("s3cret-word").text("x " + base64.b64encode(b"user:s3cret-word").decode()) == "x dXNlcj[redacted:s0]"
    )


def test_values_lose_secrets_in_texts_keys_lists_and_numbers():
    clean = redactor("hunter2hunter2", "12345678")
    value: dict[str, Any] = {
        "a": ["x hunter2hunter2 y", 1, None, True],
        "hunter2hunter2": {"pin": 12345678, "n": 1234567},
    }
    assert clean.value(value) == {
        "a": ["x [redacted:s0] y", 1, None, True],
        "[redacted:s0]": {"pin": "[redacted:s1]", "n": 1234567},
    }
    assert value["a"][0] == "x hunter2hunter2 y"


def test_a_value_without_secrets_is_given_back_as_it_is():
    value = {"a": ["b", {"c": 1}], "text": "word " * 100}
    assert redactor("hunter2hunter2").value(value) is value


@pytest.mark.parametrize("short", ["a", "ok", "abc"])
def test_a_short_secret_is_taken_out_only_as_a_whole_value(short):
    clean = redactor(short)
    assert clean.value({"status": short, "text": f"{short} and more"}) == {
        "status": "[redacted:s0]",
        "text": f"{short} and more",
    }


def test_the_lines_of_a_secret_go_one_by_one():
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASCBKcwggSj\n}\n-----END KEY-----\n"
    clean = redactor(key)
    assert clean.text(key) == "[redacted:s0]"
    assert clean.text("line 2 is MIIEvQIBADANBgkqhkiG") == "line 2 is [redacted:s0]"
    assert clean.text("f = {}") == "f = {}"


def test_a_secret_that_holds_another_goes_as_a_whole():
    clean = redactor("abcd", "xx-abcd-yy")
    assert clean.text("xx-abcd-yy abcd") == "[redacted:s1] [redacted:s0]"


def test_json_stays_json():
    for secret in ("ends in \\", '"quoted"', "new\nline", CANARY):
        for text in (secret, f'{secret}"', f"\\{secret}\\", f"{secret}\\n"):
            body = json.dumps({"a": text}).encode()
            assert set(json.loads(redactor(secret).bytes(body))) == {"a"}


@pytest.mark.parametrize("secret", ["0123456789abcdefghijklmnop", CANARY, "one two three four"])
def test_what_is_left_of_a_secret_where_a_text_was_cut_goes_too(secret):
    clean = redactor(secret)
    most = len(secret) * 2 // 3
    for length in range(max(most, 12), len(secret)):
        assert clean.value([f"the rest is {secret[:length]}"]) == ["the rest is [redacted:s0]"]
        assert clean.value([f"cut: {secret[:length]}…"]) == ["cut: [redacted:s0]…"]
        assert clean.value([f"cut: {secret[:length]}..."]) == ["cut: [redacted:s0]..."]
        assert clean.value([f"{secret[-length:]} goes on"]) == ["[redacted:s0] goes on"]
    assert clean.value([f"{secret[:8]}"]) == [secret[:8]]


def test_nothing_to_hide_is_nothing():
    assert Redactor.of({}) is None
    assert Redactor.of({"": "x"}) is None


def test_escaped_json_in_a_secret_does_not_take_long():
    """Each backslash could belong to the one of the secret or to the quote behind it: 2 ** 60 ways until the text ends."""
    secret = json.dumps(json.dumps({f"key {n}": f"value {n}" for n in range(30)}))
    clean = redactor(secret)
    cut = json.dumps(secret)[:-40]
    assert clean.text(f"x {cut} x") == 'x "[redacted:s0]'
    assert clean.text(f"x {json.dumps(secret)} x") == 'x "[redacted:s0]" x'


def test_many_backslashes_do_not_take_long():
    clean = redactor("\\" * 30 + "end of it")
    assert clean.text("\\" * 5000 + "end of") == "\\" * 5000 + "end of"


@pytest.mark.parametrize("wrap", [60, 64, 76])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n    ", "\\n", "%0D%0A"])
def test_base64_in_lines_gives_nothing_away(wrap: int, end: str) -> None:
    secret = "correct-horse-battery-staple-42"
    for before in range(80):
        text = base64.b64encode(b"x" * before + secret.encode() + b"y" * 70).decode()
        rows = end.join(text[at : at + wrap] for at in range(0, len(text), wrap))
        cleaned = redactor(secret).text(rows)
        assert "[redacted:s0]" in cleaned, (before, rows)
        remaining = cleaned.replace("[redacted:s0]", "").replace(end, "")
        assert len(remaining) <= len(text) - len(secret)
        assert redactor(secret).bytes(rows.encode()).decode() == cleaned


def test_base64_of_a_long_secret_in_lines_gives_nothing_away() -> None:
    secret = "".join(chr(33 + (7 * n) % 90) for n in range(300))
    rows = base64.encodebytes(b"abc" + secret.encode() + b"defg").decode()
    cleaned = redactor(secret).text(rows)
    assert "[redacted:s0]" in cleaned
    assert len(cleaned) < 60


@pytest.mark.parametrize(
    "value", [48151623.0, 48151623, -48151623, "48,151,623", "48_151_623", "4.8151623e+07", "4.8151623E7", "48151623.0"]
)
def test_a_secret_number_is_found_however_it_is_written(value: Any) -> None:
    cleaned = json.dumps(redactor("48151623").value({"n": value}))
    assert "[redacted:s0]" in cleaned
    assert "151" not in cleaned


def test_a_long_secret_number_is_found_as_a_float() -> None:
    for secret in ("4111111111111111", "12345678901234567890", "1234.5"):
        cleaned = redactor(secret).value([float(secret), float(secret) * 1.0, 1.5])
        assert cleaned == ["[redacted:s0]", "[redacted:s0]", 1.5]


def test_other_numbers_stay() -> None:
    value = {"n": 48151624, "f": 4815162.3, "t": "481,516,23 and 4.8151623e8"}
    assert redactor("48151623").value({"n": 48151624, "f": 4.0}) == {"n": 48151624, "f": 4.0}
    assert redactor("48151623").value(value)["n"] == 48151624


def test_much_base64_does_not_take_long() -> None:
    text = base64.encodebytes(bytes(range(256)) * 4000).decode()
    clean = redactor("correct-horse-battery-staple-42", "48151623")
    begun = time.process_time()
    assert clean.text(text) == text
    assert time.process_time() - begun < 1.0


SPECIAL = "".join(chr(33 + number * 7 % 14) for number in range(65_000)) + "ANCHOR"


def test_a_long_secret_of_special_characters_costs_no_long_patterns(monkeypatch):
    """To compile the pattern of 65,000 characters took 8 seconds, as soon as a text had the anchor."""
    lengths = []
    compile_pattern = re.compile

    def measured(source: str) -> re.Pattern[str]:
        lengths.append(len(source))
        return compile_pattern(source)

    monkeypatch.setattr(re, "compile", measured)
    hide = Redactor({SPECIAL: "k"})
    assert hide.text("only ANCHOR") == "only ANCHOR"
    for spelled in (SPECIAL, json.dumps(SPECIAL), quote(SPECIAL), base64.b64encode(SPECIAL.encode()).decode()):
        result = hide.text(f"a {spelled} z")
        assert "[redacted:k]" in result
        assert len(result) < 30
    assert hide.bytes(f"a {SPECIAL} z".encode()) == b"a [redacted:k] z"
    assert max(lengths) < 100_000


def test_what_follows_the_beginning_of_a_long_secret_is_hidden_when_it_is_not_recognized():
    hide = Redactor({SPECIAL: "k"})
    assert hide.text(f"a {SPECIAL[:1000]} and other words, ANCHOR") == "a [redacted:k]"


@pytest.mark.parametrize("before", [b"", b"x", b"xy"])
@pytest.mark.parametrize("width", [60, 64, 76])
def test_rows_of_wrapped_base64_one_by_one(before: bytes, width: int) -> None:
    secret = "a secret that is so long that programs write it in several rows, as base64 and in other ways as well: 0123456789"
    redactor = Redactor({secret: "long"})
    text = base64.b64encode(before + secret.encode()).decode()
    rows = [text[at : at + width] for at in range(0, len(text), width)]
    shown = [redactor.text(row) for row in rows]
    # Of what stands before the secret, and of what is too short to be told from other text, nothing is known.
    kept = [row for row in shown[bool(before) :] if row != mask("long")]
    assert all(len(row) < 20 for row in kept)
    assert (
        redactor.text("an ordinary line of a log, which is nothing of it")
        == "an ordinary line of a log, which is nothing of it"
    )
