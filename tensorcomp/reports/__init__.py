"""Show results as tables for people and as JSON for programs.

Pure functions of what was read from files; nothing here opens one.
"""
