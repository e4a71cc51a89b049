"""Control flow: routing, joins, loops, pipelines and waits."""
