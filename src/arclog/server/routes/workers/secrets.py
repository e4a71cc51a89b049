"""`ports.secrets.SecretSource` for workers on other machines: a secret as it is sealed. No answer can be read without the
key, which is given to servers and workers and to nobody over HTTP.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from arclog.model.errors import NotFound, RequestRejected
from arclog.ports import work
from arclog.ports.secrets import checked_secret
from arclog.server.auth.access import WORK, allows, principal_of, services_of
from arclog.server.bodies import answered, body_of
from arclog.server.openapi import work_examples as examples
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix=work.ROOT, tags=["workers"])

#: Three names and what parts them.
_LONGEST_SCOPE = 3 * 128 + 2


@router.post(
    "/secret",
    dependencies=[allows(WORK)],
    **documented(
        takes=work.SecretAsked,
        takes_example=examples.SECRET_ASKED,
        answer=work.SecretFound,
        example=examples.SECRET,
        errors=(404,),
    ),
)
async def secret(request: Request) -> Response:
    """Get the sealed secret with this name in the scope; null if there is none."""
    asked = await body_of(request, work.SecretAsked)
    checked_secret(asked.name)
    if len(asked.scope) > _LONGEST_SCOPE or not asked.scope.isprintable():
        raise RequestRejected("scope: TENANT/PROJECT/ENVIRONMENT is required")
    source = services_of(request).workplace(principal_of(request)).secrets
    if source is None:
        raise NotFound("this server does not store credentials; workers have their own")
    return answered(work.SecretFound(await source.find(asked.name, asked.scope)))
