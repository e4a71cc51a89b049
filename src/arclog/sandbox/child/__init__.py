"""What runs inside a sandbox: standard library only, and never `import arclog`; see `zygote` for the family tree.

The folder is loaded as the top-level package `child`, so the modules speak to each other by relative imports.
"""
