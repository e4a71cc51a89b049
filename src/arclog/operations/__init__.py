"""The HTTP API as data: one row for each operation.

Routes, the OpenAPI document, the reference page and the clients are generated from these rows; see
`operation.Operation`.
"""
