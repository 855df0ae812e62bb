import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tensorcomp

LIGHT = ["tensorcomp", "tensorcomp.codecs", "tensorcomp.container", "tensorcomp.planning"]
LIGHT += [
    "tensorcomp.checkpoints",
    "tensorcomp.api.compress",
    "tensorcomp.api.load",
    "tensorcomp.api.save",
]
LIGHT += ["tensorcomp.testing"]


@pytest.mark.parametrize("module", LIGHT)
def test_importing_needs_no_torch(module):
    code = f"import sys, {module}; print({{'torch', 'pytest'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_importing_the_package_imports_nothing_else():
    code = (
        "import sys; before = set(sys.modules); import tensorcomp; print(set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    found = {name for name in eval(done.stdout) if not name.startswith("tensorcomp")}
    assert not found & {"numpy", "backports", "xxhash", "ml_dtypes", "safetensors"}


def test_reading_a_header_needs_no_kernels():
    code = """
import io, subprocess, sys, tempfile
from pathlib import Path
import tensorcomp
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "x.tc.safetensors"
    save = "import tensorcomp, numpy, sys; "
    save += "tensorcomp.save_file({'a': numpy.arange(5)}, sys.argv[1])"
    subprocess.run([sys.executable, "-c", save, path], check=True)
    with tensorcomp.safe_open(path) as file:
        file.keys(), file.metadata()
print({"torch", "tensorcomp.kernels"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_public_names_are_documented_and_few():
    assert len(tensorcomp.__all__) <= 25
    assert sorted(tensorcomp.__all__) == tensorcomp.__all__
    for name in tensorcomp.__all__:
        value = getattr(tensorcomp, name)
        assert name in dir(tensorcomp)
        assert (inspect.getdoc(value) or "").strip(), name
    with pytest.raises(AttributeError, match="has no attribute 'nonesuch'"):
        tensorcomp.nonesuch  # noqa: B018 - the access is the test


def test_no_public_function_takes_a_positional_boolean():
    for name in tensorcomp.__all__:
        value = getattr(tensorcomp, name)
        if not inspect.isfunction(value):
            continue
        for parameter in inspect.signature(value).parameters.values():
            if isinstance(parameter.default, bool):
                assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, (name, parameter.name)


def test_every_error_is_a_tensorcomp_error():
    errors = [error for name, error in vars(tensorcomp.errors).items() if name.endswith("Error")]
    assert len(errors) >= 6
    assert all(issubclass(error, tensorcomp.TensorcompError) for error in errors)


@pytest.mark.parametrize("threads", [-1, -7])
def test_impossible_arguments_are_refused(threads):
    import numpy as np

    with pytest.raises(ValueError, match="threads to be at least 1"):
        tensorcomp.save({"a": np.zeros(3)}, threads=threads)
    with pytest.raises(ValueError, match="an effort of fast, balanced, max"):
        tensorcomp.save({"a": np.zeros(3)}, effort="best")
    for error in (ValueError, tensorcomp.TensorcompError):
        with pytest.raises(error, match="an effort of fast, balanced, max"):
            tensorcomp.compress("absent", effort="quick")
    for option in ("effort", "profile", "codecs", "threads", "budget", "bounds", "prune"):
        for value in (["topk"], 5.5, {"a": 1}):
            given = [value] if option == "codecs" else value
            with pytest.raises(tensorcomp.TensorcompError):
                tensorcomp.save({"a": np.zeros(3)}, **{option: given})
    for call in (tensorcomp.load_file, tensorcomp.verify, tensorcomp.decompress):
        with pytest.raises(tensorcomp.TensorcompError):
            call("absent", threads=threads)


def test_no_module_takes_the_place_of_a_public_name():
    """An import of ``package.name`` sets the package's attribute of this name to the module."""
    root = Path(tensorcomp.__file__).parent
    for stub in root.rglob("__init__.pyi"):
        package = ".".join(stub.parent.relative_to(root.parent).parts)
        names = {
            alias.asname
            for statement in ast.parse(stub.read_text()).body
            if isinstance(statement, ast.ImportFrom) and statement.module != package
            for alias in statement.names
        }
        assert not names & {path.stem for path in stub.parent.iterdir()}, stub
