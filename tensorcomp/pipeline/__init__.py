"""The compress job, a stage a file."""
