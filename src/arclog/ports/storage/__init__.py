"""The ports of stores."""
