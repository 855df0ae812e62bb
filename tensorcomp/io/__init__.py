"""Files that appear whole or not at all, errors of the system in one line, pages of memory."""
