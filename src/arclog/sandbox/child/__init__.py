"""The code that runs inside a sandbox. It uses the standard library only and never imports arclog; `zygote` describes
the process tree.

The folder is loaded as the top-level package `child`, so its modules use relative imports.
"""
