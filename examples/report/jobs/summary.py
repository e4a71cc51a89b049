"""What the report says of its rows."""

from typing import Any

from jobs.money import euros


def summarize(rows: list[dict[str, Any]], context: Any) -> dict[str, Any]:
    print(f"{len(rows)} rows in step {context.step}")
    return {"rows": len(rows), "total": euros(sum(row["amount"] for row in rows))}
