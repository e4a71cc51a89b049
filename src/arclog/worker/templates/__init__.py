"""Templates of a task, evaluated by a worker."""
