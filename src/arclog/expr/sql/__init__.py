"""SQL of a playbook, compiled with bound parameters."""
