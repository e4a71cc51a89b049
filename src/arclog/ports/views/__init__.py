"""The ports of users and readers."""
