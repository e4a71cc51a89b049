"""Parameters that many routes have, with their bounds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from arclog.model.ids import MAX_ID

#: A whole number that a store can count to.
Count = Annotated[int, Query(ge=0, le=MAX_ID)]
ExecutionId = Annotated[str, Path(description="Execution id, decimal", examples=["7392145190625280001"], max_length=32)]
Limit = Annotated[int, Query(description="Maximum number of items", ge=1, le=1000)]
Types = Annotated[
    list[str], Query(alias="type", description="Only events of these types, named in any dialect", max_length=100)
]
