"""The package's logger, silent unless the application handles it.

It is made here and not in the package, since `import tensorcomp` would take a third longer.
"""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("tensorcomp")
LOGGER.addHandler(logging.NullHandler())
