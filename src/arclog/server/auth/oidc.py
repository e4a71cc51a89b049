"""Sign-in at an OIDC issuer: the authorization code flow with PKCE (RFC 7636), for the console.

Between the two requests of a sign-in, its data (state, nonce, code verifier, page to return to) is kept only by the
browser, in a cookie that expires after ten minutes, so any server of the store can finish a sign-in that another one
began.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from arclog.drivers.addresses import is_loopback, without_port
from arclog.model.config.settings import Settings
from arclog.model.errors import RequestRejected, SettingsError, StoreUnavailable, Unauthenticated
from arclog.model.principal import Principal
from arclog.ports.clock import Clock
from arclog.server.auth.tokens import Tokens, fetch, require_https

#: The path to which the issuer sends the browser back.
CALLBACK = "/api/session/callback"
#: Time limit of a sign-in in seconds.
LOGIN_S = 600
_LONGEST_PLACE = 2000


class Login(Struct, frozen=True):
    """The data of one sign-in."""

    state: str
    nonce: str
    verifier: str
    #: the page to return to
    place: str
    redirect: str


class _Endpoints(Struct, frozen=True):
    """The fields of the issuer's metadata that are needed (OpenID Connect Discovery)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str


class _Answer(Struct, frozen=True):
    """The answer of the token endpoint."""

    id_token: str
    access_token: str = ""


def oidc_of(settings: Settings, clock: Clock, tokens: Tokens | None) -> Oidc | None:
    """The sign-in at the issuer, if it is configured. Raises SettingsError if it is configured only in part."""
    client_id = settings.text("auth.oidc_client_id")
    if not client_id:
        return None
    if tokens is None:
        raise SettingsError("auth.oidc_client_id requires auth.jwt_issuer, auth.jwt_audience and auth.jwt_keys as well")
    if "openid" not in settings.text("auth.oidc_scopes").split():
        raise SettingsError("auth.oidc_scopes must include `openid`")
    public, host = settings.text("server.public_url"), settings.text("server.host")
    if not public and not is_loopback(host):
        raise SettingsError(
            "auth.oidc_client_id requires server.public_url: the address to which the issuer sends browsers back"
        )
    require_https(settings.text("auth.jwt_issuer"), "auth.jwt_issuer")
    return Oidc(settings, clock, tokens)


class Oidc:
    """Signs people in at one issuer."""

    def __init__(self, settings: Settings, clock: Clock, tokens: Tokens) -> None:
        self._settings = settings
        self._clock = clock
        self._issuer = settings.text("auth.jwt_issuer")
        self._client_id = settings.text("auth.oidc_client_id")
        self._secret = settings.text("auth.oidc_client_secret")
        self._scopes = settings.text("auth.oidc_scopes")
        self._public = settings.text("server.public_url").rstrip("/")
        self._timeout_s = settings.number("auth.oidc_timeout_s")
        self._refresh_s = settings.number("auth.jwt_refresh_s")
        self._tokens = tokens
        self._id_tokens = Tokens(settings, tokens.keys, audience=self._client_id)
        self._endpoints: tuple[float, _Endpoints] | None = None

    @property
    def name(self) -> str:
        """The name of the issuer for people."""
        return urlsplit(self._issuer).netloc

    async def begin(self, place: str, headers: Mapping[str, str]) -> tuple[str, str]:
        """The address to send the browser to, and the cookie's value. Raises StoreUnavailable."""
        endpoints = await self._discovered()
        login = Login(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            place=own_place(place),
            redirect=self._redirect(headers),
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(login.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": login.redirect,
            "scope": self._scopes,
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in endpoints.authorization_endpoint else "?"
        cookie = base64.urlsafe_b64encode(msgspec.json.encode(login)).decode().rstrip("=")
        return f"{endpoints.authorization_endpoint}{joint}{urlencode(query)}", cookie

    async def finish(self, cookie: str, state: str, code: str) -> tuple[Principal, str]:
        """The principal that signed in, and the page to return to. Raises Unauthenticated or StoreUnavailable."""
        login = _login(cookie)
        if not code or not hmac.compare_digest(login.state.encode(), state.encode("utf-8", "surrogatepass")):
            raise Unauthenticated("this sign-in was not started in this browser, or took too long; sign in again")
        endpoints = await self._discovered()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": login.redirect,
            "client_id": self._client_id,
            "code_verifier": login.verifier,
        }
        client = (self._client_id, self._secret) if self._secret else None
        try:
            body = await fetch(
                self._settings, endpoints.token_endpoint, timeout_s=self._timeout_s, form=form, client=client
            )
            answer = msgspec.json.decode(body, type=_Answer)
        except OSError as problem:
            raise StoreUnavailable(f"the issuer {self.name} cannot be reached ({problem}); sign in again") from None
        except (ValueError, RecursionError) as problem:
            raise Unauthenticated(f"the issuer {self.name} did not confirm the sign-in ({problem})") from None
        return await self._principal(answer, login), login.place

    async def _principal(self, answer: _Answer, login: Login) -> Principal:
        """The access token identifies the person if this server accepts it, else the ID token."""
        claims = await self._id_tokens.claims(answer.id_token)
        if claims.get("nonce") != login.nonce:
            raise Unauthenticated("the issuer's token is for another sign-in; sign in again")
        try:
            principal = await self._tokens.prove(answer.access_token)
        except Unauthenticated:
            return self._id_tokens.principal(claims)
        if principal.name != claims["sub"]:
            raise Unauthenticated("the issuer's two tokens identify different users")
        return principal

    def _redirect(self, headers: Mapping[str, str]) -> str:
        if self._public:
            return self._public + CALLBACK
        host = headers.get("host", "")
        if not is_loopback(without_port(host)):
            raise RequestRejected("sign-in requires server.public_url when the server is reached by another name")
        return f"http://{host}{CALLBACK}"

    async def _discovered(self) -> _Endpoints:
        now = self._clock.monotonic()
        if self._endpoints is not None and now - self._endpoints[0] < self._refresh_s:
            return self._endpoints[1]
        where = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            endpoints = msgspec.json.decode(
                await fetch(self._settings, where, timeout_s=self._timeout_s), type=_Endpoints
            )
            if endpoints.issuer != self._issuer:
                raise ValueError("it is the metadata of another issuer")
            for url in (endpoints.authorization_endpoint, endpoints.token_endpoint):
                require_https(url, "the issuer's endpoint")
                if urlsplit(url).scheme not in ("http", "https"):
                    raise ValueError("an endpoint is not a web address")
        except (OSError, ValueError, RecursionError, SettingsError) as problem:
            raise StoreUnavailable(f"{where}: {problem}; try again in a moment") from None
        self._endpoints = (now, endpoints)
        return endpoints


def own_place(place: str) -> str:
    """Return a path of this server to return to; anything else becomes the start page."""
    is_plain = len(place) <= _LONGEST_PLACE and place.isprintable() and "\\" not in place
    is_own = place.startswith("/") and not place.startswith(("//", "/api/"))
    return place if is_plain and is_own else "/"


def _login(cookie: str) -> Login:
    try:
        raw = base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
        decoded: Any = msgspec.json.decode(raw, type=Login)
    except (ValueError, RecursionError):
        raise Unauthenticated("this sign-in was not started in this browser, or took too long; sign in again") from None
    login: Login = decoded
    return Login(login.state, login.nonce, login.verifier, own_place(login.place), login.redirect)
