from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def test_modules_do_not_import_each_other_in_circles():
    """Layers keep rooms apart; this keeps modules within a room apart, lazy imports included."""
    graph = grimp.build_graph(
        "tensorcomp", "tensorcomp_cli", exclude_type_checking_imports=True, cache_dir=None
    )
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"circle of imports: {' -> '.join(error.args[1])}")
