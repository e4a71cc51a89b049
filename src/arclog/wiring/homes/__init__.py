"""The folder of an arclog on this machine."""
