"""Amounts as people read them."""


def euros(amount: float) -> str:
    return f"{amount:.2f} EUR"
