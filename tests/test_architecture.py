"""The rules of the house: imports go one way, the runtime needs neither torch nor a new Python."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ORDER = ("hmerctl", "targets", "export", "train", "runtime")
"""Each folder may import itself and those to its right."""

RUNTIME_MAY_IMPORT = {"numpy", "PIL", "onnxruntime", "pydantic", "hmerctl"}
FRONT_DOOR_MAY_IMPORT_AT_ONCE = {"typer", "hmerctl"}

MODULES = [path for folder in ORDER for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(path: Path, top_level: bool = False) -> set[str]:
    """Names of the modules that a file imports; ``top_level``: only when it is itself imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else ast.walk(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def folder_of(module: str) -> str | None:
    """Which of our folders a module lies in; None for other packages."""
    package, _, rest = module.partition(".")
    if package != "hmerctl":
        return None
    first = rest.split(".")[0]
    return first if first in ORDER else "hmerctl"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = ORDER.index(path.relative_to(ROOT).parts[0])
    for module in imports(path):
        folder = folder_of(module)
        if folder is None or module == "hmerctl":  # the package itself holds nothing but the version
            continue
        assert ORDER.index(folder) >= own, f"imports {module}"


@pytest.mark.parametrize("path", [p for p in MODULES if p.is_relative_to(ROOT / "runtime")], ids=lambda p: p.name)
def test_the_runtime_imports_only_what_a_device_has(path: Path) -> None:
    optional = {"matplotlib", "tensorrt", "cuda"}  # reached only by who asks for them, with an error that says so
    others = {module.split(".")[0] for module in imports(path)} - set(sys.stdlib_module_names)
    assert others <= RUNTIME_MAY_IMPORT | optional
    at_once = {module.split(".")[0] for module in imports(path, top_level=True)} - set(sys.stdlib_module_names)
    assert at_once <= RUNTIME_MAY_IMPORT


@pytest.mark.parametrize("path", [p for p in MODULES if p.is_relative_to(ROOT / "hmerctl")], ids=lambda p: p.name)
def test_the_front_door_imports_lazily(path: Path) -> None:
    at_once = imports(path, top_level=True)
    others = {module.split(".")[0] for module in at_once} - set(sys.stdlib_module_names)
    assert others <= FRONT_DOOR_MAY_IMPORT_AT_ONCE
    ours = {module for module in at_once if folder_of(module) not in (None, "hmerctl")}
    assert all(module.startswith("hmerctl.runtime.errors") for module in ours)


def test_recognition_works_where_torch_cannot_be_imported(shared_tiny: Path) -> None:
    code = f"""
import sys
for name in ("torch", "onnx", "lightning", "scipy", "matplotlib", "pyarrow"):
    sys.modules[name] = None
import numpy as np
from hmerctl.runtime import bench, bench_report, show
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.recognizer import Recognizer
print(Recognizer({str(shared_tiny)!r}).recognize(Ink((np.array([[0.0, 0.0], [9.0, 9.0]]),))).latex)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.stdout.strip() == "x^{2}+y", out.stderr


def python_3_10() -> str | None:
    """An interpreter of the oldest supported version, if this machine has one."""
    candidates = [*map(str, Path.home().glob(".pyenv/versions/3.10.*/bin/python")), shutil.which("python3.10")]
    working = (
        path for path in candidates if path and not subprocess.run([path, "-c", ""], capture_output=True).returncode
    )
    return next(working, None)


def test_the_runtime_is_python_3_10(tmp_path: Path) -> None:
    for path in MODULES:
        if path.is_relative_to(ROOT / "runtime") or path.is_relative_to(ROOT / "hmerctl"):
            ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    python = python_3_10()
    if python is None:
        pytest.skip("no Python 3.10 here: only the syntax was checked, by ast")
    used = {module for path in (ROOT / "runtime").rglob("*.py") for module in imports(path)}
    members = {module for module in used if module.split(".")[0] in sys.stdlib_module_names}
    code = f"""
import importlib, compileall, sys
for member in {sorted(members)!r}:
    module, _, name = member.rpartition(".")
    try:
        importlib.import_module(member)
    except ModuleNotFoundError:
        assert hasattr(importlib.import_module(module), name), member
sys.exit(not all(compileall.compile_dir(folder, quiet=1, force=True) for folder in sys.argv[1:]))
"""
    folders = [str(ROOT / "runtime"), str(ROOT / "hmerctl")]
    environment = {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    out = subprocess.run([python, "-c", code, *folders], capture_output=True, text=True, env=environment, check=False)
    assert out.returncode == 0, out.stdout + out.stderr
