"""Authentication and authorization: keys, sessions, tokens, access and the audit."""
