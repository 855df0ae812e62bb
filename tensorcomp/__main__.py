"""Run the command line: ``python -m tensorcomp`` is ``tensorcomp``."""

import importlib

if __name__ == "__main__":
    importlib.import_module("tensorcomp_cli.entry").run()
