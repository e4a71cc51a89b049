"""Scale on paper: measured costs of a step, a model of many servers on them, and a simulation that checks the model."""
