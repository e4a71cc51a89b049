"""The clocks of a machine, a home and a store."""
