"""The requirements of a python task: names of packages with versions (PEP 508), never options, files or paths of an
installer.

Equivalent lists have the same digest, so they share an environment.
"""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
from collections.abc import Sequence

import msgspec
from msgspec import Struct

_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9_.*+!-]+"
_REQUIREMENT = re.compile(
    rf"""
    (?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?) \s*
    (?:\[(?P<extras>[A-Za-z0-9._,\s-]*)\])? \s*
    (?: @\s*(?P<url>[A-Za-z][A-Za-z0-9+.-]*:[^\s;]+)
      | (?P<open>\()? \s* (?P<versions>{_VERSION}(?:\s*,\s*{_VERSION})*)? \s* (?(open)\)) )? \s*
    (?:;\s*(?P<marker>.+))?
    """,
    re.VERBOSE,
)
_CONTROL = re.compile(r"[\x00-\x1f]")
_SHOWN = 100


class NotARequirement(Exception):
    """The text is not a valid requirement; the message has the reason."""


class RequirementSet(Struct, frozen=True):
    """The required packages of an environment."""

    #: normalized, sorted, each once
    requirements: tuple[str, ...]
    #: names the environment: these requirements on this Python and platform
    digest: str

    def __str__(self) -> str:
        text = ", ".join(self.requirements)
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def normalize_requirements(requirements: Sequence[str]) -> RequirementSet:
    """Return the requirements in normalized form. Raises NotARequirement."""
    lines = tuple(sorted({_normalized(text, index) for index, text in enumerate(requirements)}))
    facts = (lines, sys.version, sys.implementation.cache_tag, sysconfig.get_platform())
    return RequirementSet(lines, hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32])


def _normalized(text: str, index: int) -> str:
    match = None if _CONTROL.search(text) else _REQUIREMENT.fullmatch(text.strip())
    if match is None:
        hint = "write a name with its version, e.g. 'rich==13.9.4' or 'rich>=13,<14'"
        if text.strip().startswith("-"):
            hint = "options belong to the settings python.find_links and python.offline, or to the installer's own"
        elif "{{" in text:
            hint = "it is taken as it is written: templates are not rendered here"
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        raise NotARequirement(f"requirements[{index}]: {shown!r} is not a requirement; {hint}")
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    extras = sorted({part.strip().lower() for part in (match["extras"] or "").split(",")} - {""})
    line = f"{name}[{','.join(extras)}]" if extras else name
    if match["url"]:
        line += f" @ {match['url']}"
    elif match["versions"]:
        line += ",".join(sorted({"".join(part.split()) for part in match["versions"].split(",")}))
    if match["marker"]:
        line += f" ; {' '.join(match['marker'].split())}"
    return line
