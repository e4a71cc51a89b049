"""What enters an execution: inputs, reports, signals and times of schedules."""
