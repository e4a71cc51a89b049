"""The secrets of a command: had for each attempt, hidden from then on."""

from __future__ import annotations

from typing import Any

import pytest

from arclog.expr import compile_tree
from arclog.model.errors import SecretUnavailable
from arclog.model.outcome import Outcome, error, failed
from arclog.ports.secrets import Credential
from arclog.results.memory import MemoryResults
from arclog.testing.tools import Recorder, task_context
from arclog.worker.keychain import CommandSecrets
from arclog.worker.storing import TaskResults

ENTRIES = ({"name": "a", "kind": "env"}, {"name": "b", "kind": "oauth2"}, {"name": "gone", "kind": "env"})


class Source:
    """Secrets that the test changes between attempts."""

    def __init__(self) -> None:
        self.values = {"a": "first-secret", "b": "token-1"}
        self.names: list[str] = []
        self.unaccepted: list[str] = []

    async def check(self, entries: Any, scope: str) -> list[str]:
        return []

    async def resolve(self, entry: Any, scope: str) -> Credential:
        name = entry["name"]
        self.names.append(name)
        if name not in self.values:
            raise SecretUnavailable(f"keychain entry {name}: not there", retryable=True)
        return Credential(name, entry["kind"], {"value": self.values[name]}, (self.values[name],))

    async def refused(self, entry: Any, scope: str) -> None:
        self.unaccepted.append(entry["name"])

    async def close(self) -> None: ...


class Task:
    """As much of a task's program as the keychain looks at."""

    def __init__(self, config: Any) -> None:
        self.paths = lambda: compile_tree(config).paths


def task(**config: Any) -> Any:
    return Task(config)


async def test_only_what_is_used_is_given_and_what_is_at_hand_is_hidden():
    source = Source()
    secrets = CommandSecrets(source, ENTRIES, "t/p/e")
    attempt = await secrets.open(task(x="no secret"))
    assert attempt.scope is None
    assert attempt.problem is None
    assert attempt.value(["first-secret", "token-1"]) == ["[redacted:a]", "token-1"]
    attempt = await secrets.open(task(x="{{ keychain.b.value }}"))
    assert attempt.scope == {"b": {"value": "token-1"}}
    assert attempt.value(["first-secret", "token-1"]) == ["[redacted:a]", "[redacted:b]"]


async def test_the_whole_keychain_is_all_of_it():
    source = Source()
    source.values["gone"] = "third-secret"
    attempt = await CommandSecrets(source, ENTRIES, "t/p/e").open(task(x="{{ keychain[args.which].value }}"))
    assert set(attempt.scope or {}) == {"a", "b", "gone"}


async def test_each_attempt_has_the_secret_as_it_is_then_and_old_ones_stay_hidden():
    source = Source()
    secrets = CommandSecrets(source, ENTRIES, "t/p/e")
    use = task(x="{{ keychain.a.value }}")
    await secrets.open(use)
    source.values["a"] = "second-secret"
    attempt = await secrets.open(use)
    assert attempt.scope == {"a": {"value": "second-secret"}}
    assert attempt.value("first-secret second-secret") == "[redacted:a] [redacted:a]"


async def test_what_cannot_be_had_is_an_error_outcome():
    attempt = await CommandSecrets(Source(), ENTRIES, "t/p/e").open(task(x="{{ keychain.gone.value }}"))
    assert attempt.problem is not None
    assert attempt.problem.error is not None
    assert attempt.problem.error.as_dict() == {
        "kind": "auth",
        "message": "keychain entry gone: not there",
        "code": "KEYCHAIN",
        "retryable": True,
    }


@pytest.mark.parametrize(
    ("auth", "kind", "says"),
    [("gone", "auth", "not there"), ("nobody", "auth", "declared: a, b, gone"), (7, "config", "name")],
)
async def test_auth_that_cannot_be_had(auth, kind, says):
    attempt = await CommandSecrets(Source(), ENTRIES, "t/p/e").open(task(auth="{{ args.x }}"))
    problem = await attempt.authorize({"auth": auth})
    assert problem is not None
    assert problem.error is not None
    assert problem.error.kind == kind
    assert says in problem.error.message


async def test_auth_gives_the_credential_and_hides_it():
    attempt = await CommandSecrets(Source(), ENTRIES, "t/p/e").open(task(auth="b"))
    assert await attempt.authorize({"auth": "b"}) is None
    assert attempt.auth is not None
    assert attempt.auth.fields["value"] == "token-1"
    assert attempt.scope == {"b": {"value": "token-1"}}
    assert attempt.value("token-1") == "[redacted:b]"


async def test_a_credential_that_was_not_accepted_is_not_kept():
    source = Source()
    attempt = await CommandSecrets(source, ENTRIES, "t/p/e").open(task(auth="b"))
    await attempt.authorize({"auth": "b"})
    await attempt.conclude(failed(error("timeout", "slow")))
    assert source.unaccepted == []
    await attempt.conclude(failed(error("auth", "401")))
    assert source.unaccepted == ["b"]


async def test_every_part_of_an_outcome_is_hidden():
    attempt = await CommandSecrets(Source(), ENTRIES, "t/p/e").open(task(x="{{ keychain.a.value }}"))
    outcome = await attempt.conclude(
        Outcome(
            status="error",
            result={"first-secret": ["x first-secret"]},
            error=error("exception", "no first-secret", code="first-secret"),
            meta={"url": "http://x/?q=first-secret"},
            helper={"py": {"traceback": "first-secret\n"}},
        )
    )
    assert outcome.as_record() == {
        "status": "error",
        "result": {"[redacted:a]": ["x [redacted:a]"]},
        "error": {"kind": "exception", "message": "no [redacted:a]", "code": "[redacted:a]", "retryable": False},
        "meta": {"url": "http://x/?q=[redacted:a]"},
        "py": {"traceback": "[redacted:a]\n"},
    }


async def test_a_secret_that_is_a_word_of_ours_does_not_change_what_the_outcome_is():
    source = Source()
    source.values["a"] = "error"
    attempt = await CommandSecrets(source, ENTRIES, "t/p/e").open(task())
    outcome = await attempt.conclude(failed(error("timeout", "an error")))
    assert outcome.as_record() == {
        "status": "error",
        "error": {"kind": "timeout", "message": "an [redacted:a]", "code": None, "retryable": True},
    }


async def test_logs_progress_and_stored_data_are_hidden_on_the_way():
    attempt = await CommandSecrets(Source(), ENTRIES, "t/p/e").open(task(x="{{ keychain.a.value }}"))
    recorder, results = Recorder(), MemoryResults()
    context = task_context(recorder, results=results)
    attempt.log(context.log)("stdout", "it is first-secret")
    attempt.progress(context.progress)(1, None, "of first-secret")
    assert recorder.lines == [("stdout", "it is [redacted:a]")]
    assert recorder.progress == [(1, None, "of [redacted:a]")]
    sink = attempt.results(TaskResults(results, "t", 100))
    assert sink.inline_max_bytes == 100
    writer = sink.writer(content_type="text/plain")
    for piece in (b"it is fir", b"st-sec", b"ret, and more"):
        await writer.write(piece)
    content = await writer.commit()
    assert b"".join([part async for part in results.chunks("t", content.sha256)]) == b"it is [redacted:a], and more"
    assert "first" not in content.preview
    writer = sink.writer(listed=True)
    await writer.add([{"row": "first-secret"}, {"row": 1}])
    content = await writer.commit()
    assert await results.items("t", content.sha256, 0, 9) == [{"row": "[redacted:a]"}, {"row": 1}]


async def test_without_a_keychain_nothing_is_asked_and_nothing_is_wrapped():
    attempt = await CommandSecrets(None, (), "t/p/e").open(task(x="{{ keychain.a }}"))
    sink = TaskResults(MemoryResults(), "t", 100)
    outcome = Outcome(result="x")
    assert attempt.results(sink) is sink
    assert await attempt.conclude(outcome) is outcome


async def test_a_worker_that_has_no_secrets_says_so():
    attempt = await CommandSecrets(None, ENTRIES, "t/p/e").open(task(x="{{ keychain.a.value }}"))
    assert attempt.problem is not None
    assert attempt.problem.error is not None
    assert "cannot resolve secrets" in attempt.problem.error.message
