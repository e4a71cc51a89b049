"""From the text of a template to closures."""
