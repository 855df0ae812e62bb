"""What became of a checkpoint: figures, tables for people, JSON for programs.

Pure functions of what was read from files; nothing here opens one.
"""
