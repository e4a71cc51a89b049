"""Parts of the OpenAPI document."""
