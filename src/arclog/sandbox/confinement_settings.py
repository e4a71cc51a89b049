"""The confinement of tasks, as configured by the operator's settings. `child.confine` puts it into force.

Invariant: arclog's home, its keys and the folders of other tasks are hidden at every level except `off`, and a playbook
cannot change this. Unset, the settings mean the defaults of `arclog run`: tasks read what its user may read, and write
where it was started. Tasks of a server's worker (`for_server`) have only their own folders, and local files only in a
folder that the operator names (`object.file_root`).
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from arclog.drivers.postgres.address import SCHEMES, AddressError, parts_of
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.sandbox.child.reach import Reach
from arclog.sandbox.folders import FRESH, TaskFolders, fresh_unless_named, scratch_parent, workdir_of
from arclog.sandbox.launcher import package_paths

STRICT, STANDARD, OFF = "strict", "standard", "off"
#: The value of an allow-list that allows nothing more, and of `object.file_root` if tasks use no local files.
NONE = "none"
#: The value of `tasks.allow_networks` that allows everything.
ALL = "all"
#: The value of `Confinement.network` if the setting names networks.
LIST = "list"
#: The public internet, in a list of networks.
_PUBLIC = "public"

#: Programs and libraries, and the files that they need. Of /etc, only files without secrets.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_CONFIGURATION = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version",
    "fonts", "gai.conf", "group", "host.conf", "hostname", "hosts", "inputrc", "java", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "magic", "magic.mime", "mime.types", "nsswitch.conf",
    "os-release", "passwd", "perl", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf",
    "profile", "profile.d", "protocols", "redhat-release", "resolv.conf", "rpc", "services", "shells", "ssl/cert.pem",
    "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "xattr.conf",
)  # fmt: skip
_MACHINE = ("/sys/devices/system", "/sys/kernel/mm/transparent_hugepage", "/sys/fs/cgroup")
#: Temporary folders by which programs know them, and the name of their replacement in a task's folder.
_TEMPORARY = {"/tmp": "tmp", "/var/tmp": "tmp"}  # noqa: S108
#: Settings that name a file with a secret.
_SECRET_FILES = (
    "secrets.key_file", "secrets.manager_credentials_file", "client.token_file", "results.credentials_file",
    "bus.cert_file", "bus.key_file", "bus.creds_file", "bus.nkey_file", "smtp.password_file",
)  # fmt: skip
_NO_NETWORK = frozenset(
    {
        errno.ENETUNREACH,
        errno.EAFNOSUPPORT,
        errno.EHOSTUNREACH,
        errno.EADDRNOTAVAIL,
        errno.ECONNREFUSED,  # the loopback of an empty network
    }
)
_NO_WRITE = frozenset({errno.EACCES, errno.EROFS, errno.EPERM})
_NO_FILE = _NO_WRITE | {errno.ENOENT}
_SETTINGS_FILE = "arclog.toml"


class _Login(NamedTuple):
    """How arclog itself logs in to a service, by variables of its environment."""

    #: values of `secrets.manager`, and schemes of the addresses of stores
    services: tuple[str, ...]
    #: patterns of the variables
    variables: tuple[str, ...]
    #: the variables that name a file with a secret
    files: tuple[str, ...] = ()
    #: the files that are used without such a variable
    defaults: tuple[str, ...] = ()


_LOGINS = (
    _Login(("vault",), ("VAULT_*",)),
    _Login(
        ("aws", "s3"),
        ("AWS_*",),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    ),
    _Login(
        ("google", "gs"),
        ("GOOGLE_*", "SERVICE_ACCOUNT"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT"),
        ("~/.config/gcloud/application_default_credentials.json",),
    ),
    _Login(("azure", "az"), ("AZURE_*", "IDENTITY_HEADER"), ("AZURE_FEDERATED_TOKEN_FILE",)),
    _Login(
        ("postgres", "postgresql"),
        ("PGHOST*", "PGPORT", "PGDATABASE", "PGUSER", "PGPASS*", "PGSERVICE*", "PGSSL*"),
        ("PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY"),
        ("~/.pgpass", "~/.pg_service.conf", "~/.postgresql/postgresql.key"),
    ),
)
_STORES = ("results.url", "store.url", "store.listen_url")
#: Keywords of libpq that name a file with a secret.
_POSTGRES_FILES = ("passfile", "servicefile", "sslkey")


class Confinement(Struct, frozen=True):
    """The permissions of a worker's tasks. Paths are absolute; `/` in `read` means everything."""

    level: str
    read: tuple[str, ...]
    write: tuple[str, ...]
    #: not accessible, even inside of the other paths
    hidden: tuple[str, ...]
    #: folders for which a task gets an empty replacement, by its name in the task's folder
    replaced: dict[str, str]
    #: `all`, `none` or `list`
    network: str
    #: maximum number of processes and threads of one task
    max_threads: int
    #: for all processes of one task; 0 means no limit
    max_memory_bytes: int
    #: a task of root bypasses file permissions within the allowed paths
    keeps_rights_on_files: bool = False
    #: the networks of a `list`, for `child.networks`
    networks: dict[str, Any] = {}

    def spec(self, *, read: Iterable[str] = (), write: Iterable[str] = ()) -> dict[str, Any]:
        """Return the settings for `child.confine`, with additional paths for one sandbox."""
        return {
            "level": self.level,
            "read": [*self.read, *read],
            "write": [*self.write, *write],
            "hidden": list(self.hidden),
            "replaced": self.replaced,
            "network": self.network,
            "networks": self.networks,
            "max_threads": self.max_threads,
            "max_memory_bytes": self.max_memory_bytes,
            "keeps_rights_on_files": self.keeps_rights_on_files,
        }

    def shows_hidden(self) -> bool:
        """Return whether a hidden path lies inside an allowed one. Only a mount namespace can hide it then."""
        return any(self._is_below(path, (*self.read, *self.write)) for path in self.hidden)

    def hint(self, number: int, exception: str, path: str) -> str:
        """Return a hint for the author if the confinement may have caused a system error; else ''."""
        if exception == "gaierror" or number in _NO_NETWORK:
            if self.network == ALL:
                return ""
            if self.network == LIST:
                return "confined tasks reach the networks that the setting tasks.allow_networks names, by TCP"
            reason = "tasks.confinement is strict" if self.level == STRICT else "setting tasks.allow_networks"
            return f"confined tasks have no network here ({reason})"
        if number not in _NO_FILE or not path.startswith("/") or self._is_below(path, self.write):
            return ""
        if number in _NO_WRITE and self._is_below(path, self.read):
            return "confined tasks may not write there (setting tasks.allow_write)"
        return "" if self._is_below(path, self.read) else "confined tasks may not read there (setting tasks.allow_read)"

    def _is_below(self, path: str, roots: Iterable[str]) -> bool:
        return any(Path(path).is_relative_to(root) for root in roots)


def confinement_of(settings: Settings, scratch: Path) -> Confinement | None:
    """Return the confinement of a worker's tasks, or None if they are not confined. Raises SettingsError for a path
    that does not exist or lies in arclog's own folders.
    """
    level = settings.text("tasks.confinement")
    if level == OFF:
        return None
    hidden = tuple(dict.fromkeys(_hidden(settings, scratch)))
    workdir, configured = workdir_of(settings), settings.text("worker.workdir")
    standard = level == STANDARD
    read = _paths(settings, "tasks.allow_read", hidden, ["/"] if standard else [])
    temporary = os.path.realpath(tempfile.gettempdir())
    write = _paths(settings, "tasks.allow_write", hidden, [temporary] if standard else [])
    if "/" not in read:  # otherwise, as under `arclog run`, tasks are the caller's own
        check_settings_file("tasks.allow_write", [*write, configured] if configured not in ("", FRESH) else write)
    if workdir is not None:
        (write if standard or configured else read).append(str(workdir))
    replaced = {} if temporary in write else _TEMPORARY
    home = str(Path(settings.text("home")).absolute())
    network, networks = _networks(settings, "tasks.allow_networks", ALL)
    return Confinement(
        level=level,
        read=("/",) if "/" in read else tuple(dict.fromkeys([*_system(), *read])),
        write=tuple(dict.fromkeys(write)),
        hidden=hidden,
        # A task may call arclog, which then gets a home in the task's folder.
        replaced={**replaced, home: "home"} if workdir is not None else replaced,
        network=network if standard else NONE,
        networks=networks if standard else {},
        max_threads=settings.integer("tasks.max_threads"),
        max_memory_bytes=settings.integer("tasks.max_memory_bytes"),
        keeps_rights_on_files=standard and workdir is not None and os.geteuid() == 0,
    )


def reach_of(settings: Settings, scratch: Path) -> Reach:
    """Return the files that kinds in this process may open: those of confined tasks, and the folder of the operator's
    data.
    """
    hidden = tuple(dict.fromkeys(_hidden(settings, scratch)))
    home = os.path.realpath(settings.text("home"))
    confinement = confinement_of(settings, scratch)
    if not is_limited(settings, confinement):
        return Reach(home, hidden, None, None)
    root = data_root(settings)
    roots = [] if root is None else [root]
    lists = {name: _paths(settings, name, hidden, []) for name in ("tasks.allow_read", "tasks.allow_write")}
    write = (*roots, *lists["tasks.allow_write"])
    read = None if "/" in lists["tasks.allow_read"] else (*write, *lists["tasks.allow_read"])
    return Reach(home, hidden, read, write, root or "")


def is_limited(settings: Settings, confinement: Confinement | None) -> bool:
    """Return whether tasks may write only some files, as on servers. Relative paths are within `object.file_root` then."""
    return confinement is not None and ("/" not in confinement.read or bool(settings.text("tasks.allow_read").strip()))


def closed_to_outputs(settings: Settings, scratch: Path) -> tuple[str, ...]:
    """Return the real paths from which no output of a task is read, even inside its working directory: hidden paths,
    and paths for which tasks see a replacement.
    """
    hidden = tuple(_hidden(settings, scratch))
    confinement, workdir = confinement_of(settings, scratch), workdir_of(settings)
    if confinement is None or workdir is None:
        return hidden
    replaced = [os.path.realpath(path) for path in confinement.replaced]
    # A working directory inside of such a folder still belongs to the task.
    return (*hidden, *(path for path in replaced if Path(path).is_relative_to(os.path.realpath(workdir))))


def data_root(settings: Settings) -> str | None:
    """Return the real path of the folder with local files of tasks, which SQL on files may read and write at every level; None
    if tasks of this worker have no local files.
    """
    root = settings.text("object.file_root").strip()
    return None if root == NONE else os.path.realpath(Path(root or ".").expanduser())


def for_server(settings: Settings, *, is_own_machine: bool = False) -> Settings:
    """Return the settings of a server's worker. Its tasks have only their own folders, unless the operator
    allows more.

    Args:
        settings: as the operator configured them.
        is_own_machine: all callers are on this machine. Their tasks have its networks, and the files in the folder where
            the server was started.

    """
    network = ALL if is_own_machine else NONE
    defaults = {
        "tasks.allow_read": NONE,
        "tasks.allow_write": NONE,
        "tasks.allow_networks": network,
        "python.build_networks": _build_networks(settings, network),
        "postgres.allow_networks": "loopback,private",
    }
    if not is_own_machine:
        defaults["object.file_root"] = NONE
    unset = {name.replace(".", "__"): value for name, value in defaults.items() if not settings.text(name)}
    return fresh_unless_named(settings.replaced(**unset))


def _build_networks(settings: Settings, network: str) -> str:
    """Return the default of `python.build_networks` where tasks have this network by default."""
    if settings.text("tasks.confinement") == STRICT:
        return NONE
    return ALL if network == ALL else _PUBLIC


def confined(
    confinement: Confinement | None, folders: TaskFolders, *, read: Sequence[str] = (), write: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the part of a guard's spec that confines it to its folders and these paths; empty if tasks are not
    confined.
    """
    if confinement is None:
        return {}
    return {"confinement": confinement.spec(read=read, write=write), "folder": str(folders.folder)}


def check_settings_file(setting: str, write: Iterable[str]) -> None:
    """Raises SettingsError if tasks could create the settings file of the next start: only an existing file can be hidden
    from them. `setting` has the paths that they may write.
    """
    place = Path(_SETTINGS_FILE).absolute()
    if place.is_file() and not place.is_symlink():
        return
    folder = os.path.realpath(place.parent)
    if any(Path(folder).is_relative_to(os.path.realpath(path)) for path in write):
        raise SettingsError(
            f"{setting}: tasks could create {place}, which configures the next start; create it (it may be empty, but "
            "not a link), or start in another folder"
        )


def while_building(confinement: Confinement, settings: Settings) -> Confinement:
    """Return the confinement of an installation that can run code of packages. It reads what tasks read, writes only
    the folders of its sandbox, and has the networks of `python.build_networks`. Raises SettingsError.
    """
    network, networks = _networks(settings, "python.build_networks", NONE if confinement.level == STRICT else ALL)
    replaced = _TEMPORARY
    # This Python may lie in a folder that is replaced.
    needed = [path for path in _system() if any(Path(path).is_relative_to(folder) for folder in replaced)]
    return replace(
        confinement,
        read=(*confinement.read, *needed),
        write=(),
        replaced=replaced,
        network=network,
        networks=networks,
        keeps_rights_on_files=False,
    )


def _networks(settings: Settings, name: str, default: str) -> tuple[str, dict[str, Any]]:
    """Return `all`, `none`, or `list` with the networks. Raises SettingsError."""
    text = settings.text(name).strip() or default
    if text in (ALL, NONE):
        return text, {}
    from arclog.drivers.http.guard import listed_networks  # no other worker needs it

    return LIST, listed_networks(text, name)


def _paths(settings: Settings, name: str, hidden: Sequence[str], default: list[str]) -> list[str]:
    text = settings.text(name).strip()
    if not text or text == NONE:
        return [] if text else default
    paths = []
    for part in text.split(","):
        path = os.path.realpath(Path(part.strip()).expanduser()) if part.strip() else ""
        if not path:
            continue
        if not Path(path).exists():
            raise SettingsError(f"{name}: there is no {part.strip()}; create it, or remove it from the list")
        if any(Path(path).is_relative_to(own) for own in hidden):
            raise SettingsError(f"{name}: {part.strip()} lies in arclog's own folders, which tasks never reach")
        paths.append(path)
    return paths


def _hidden(settings: Settings, scratch: Path) -> Iterator[str]:
    """Yield the real paths that no task may access."""
    own = scratch.parent if scratch.parent == scratch_parent() else scratch
    secret = [settings.text(name) for name in _SECRET_FILES]
    secret += [path for name, path in os.environ.items() if name.startswith("ARCLOG_") and name.endswith("_FILE")]
    for login in _logins(settings):
        secret += [os.environ.get(variable, "") for variable in login.files]
        secret += login.defaults
    secret += _named_by_stores(settings)
    home = settings.text("home")
    # The settings file can contain passwords, and whoever writes it configures the next start. Its own place is hidden
    # even if it is missing, or a link.
    places = [f"{os.path.realpath(folder)}/{_SETTINGS_FILE}" for folder in (".", Path(home).absolute().parent)]
    yield from places
    for path in (home, str(own), *secret, *places):
        if path:
            yield os.path.realpath(Path(path).expanduser())


def _logins(settings: Settings) -> list[_Login]:
    addresses = (settings.text(name) for name in _STORES)
    used = {settings.text("secrets.manager"), *(address.strip().partition("://")[0] for address in addresses)}
    return [login for login in _LOGINS if not used.isdisjoint(login.services)]


def _named_by_stores(settings: Settings) -> Iterator[str]:
    """Yield the files that the addresses and credentials of stores name; those that cannot be read are used by no store."""
    for name in _STORES:
        address = settings.text(name).strip()
        if address.startswith(SCHEMES):
            with suppress(AddressError):
                parts = parts_of(address)
                yield from (parts.get(keyword, "") for keyword in _POSTGRES_FILES)
    credentials = settings.text("results.credentials_file")
    if credentials:
        variables = {variable.lower() for login in _LOGINS for variable in login.files}
        with suppress(OSError, UnicodeDecodeError):
            for line in Path(credentials).read_text(encoding="utf-8").splitlines():
                variable, _, value = line.partition("=")
                if variable.strip().lower() in variables:
                    yield value.strip()


def own_variables(settings: Settings) -> tuple[str, ...]:
    """Return the patterns of the environment variables that no playbook may read: arclog's settings, and those with
    which its secret manager and its stores log in.
    """
    return ("ARCLOG_*", *(pattern for login in _logins(settings) for pattern in login.variables))


def hidden_paths(settings: Settings) -> tuple[str, ...]:
    """Return the real paths that no playbook may read: arclog's own folders and keys, and the folders of tasks."""
    return tuple(dict.fromkeys(_hidden(settings, scratch_parent() / "any")))


def _system() -> Iterator[str]:
    """Yield the paths that programs need, including those of this Python and of the search path."""
    yield from _SYSTEM
    yield from (f"/etc/{name}" for name in _CONFIGURATION)
    yield from _MACHINE
    for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
        yield from (f"{prefix}/{name}" for name in ("bin", "lib", "lib64", "include", "share", "pyvenv.cfg"))
    import sysconfig  # only a process that starts tasks needs it

    yield from dict.fromkeys((sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")))
    yield from package_paths()
    for path in map(Path, os.get_exec_path()):
        if path.is_absolute() and path != Path("/"):
            # The shims of pyenv, asdf and mise are scripts that start programs beside them.
            yield str(path.parent if path.name == "shims" else path)
