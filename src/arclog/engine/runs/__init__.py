"""Creation of runs: requests, the catalog, children, schedules and concurrency slots."""
