"""How runs come about: requests, the catalog, children, schedules and concurrency slots."""
