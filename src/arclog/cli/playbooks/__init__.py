"""Commands about playbook files."""
