"""Who a caller is and what it may do: keys, sessions, tokens, access and the audit."""
