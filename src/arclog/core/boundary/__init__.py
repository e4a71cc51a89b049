"""The inputs of an execution: requests, reports, signals and times of schedules."""
