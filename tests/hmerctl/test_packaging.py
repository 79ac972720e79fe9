"""What a wheel holds: one package at the top, everything that a command needs, and nothing of the tests."""

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("hmerctl", "runtime", "train", "export", "targets")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, shared_tiny: Path) -> Path:
    """A folder as site-packages is after ``pip install`` of the wheel; the tiny bundle is what it ships."""
    tree = tmp_path_factory.mktemp("tree")  # a copy: a build leaves its traces in the source
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, tree)
    shutil.copytree(shared_tiny, tree / "hmerctl" / "shipped" / shared_tiny.name)
    command = [sys.executable, "-c", "from setuptools.build_meta import build_wheel; print(build_wheel('dist'))"]
    built = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "Package would be ignored" not in built.stderr
    (wheel,) = (tree / "dist").glob("hmerctl-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree / "site")
    return tree / "site"


def test_only_hmerctl_stands_at_the_top(site: Path) -> None:
    names = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"hmerctl"}


def test_every_package_is_in_it(site: Path) -> None:
    ours = {path.parent.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("__init__.py")}
    as_installed = {path if path.parts[0] == "hmerctl" else Path("hmerctl", path) for path in ours}
    missing = sorted(str(path) for path in as_installed if not (site / path / "__init__.py").is_file())
    assert not missing, "name them in packages and package-dir of pyproject.toml"


@pytest.mark.parametrize(
    ("source", "installed"),
    [
        ("train/presets/*.toml", "hmerctl/train/presets"),
        ("train/grids/*.toml", "hmerctl/train/grids"),
        ("runtime/samples/*.json", "hmerctl/runtime/samples"),
        ("targets/coreml/kit/*", "hmerctl/targets/coreml/kit"),
    ],
)
def test_presets_samples_and_kits_are_in_it(site: Path, source: str, installed: str) -> None:
    expected = {path.name for path in ROOT.glob(source)}
    assert expected and expected <= {path.name for path in (site / installed).iterdir()}


def test_the_shipped_folder_is_in_it_with_all_its_files(site: Path, shared_tiny: Path) -> None:
    shipped = site / "hmerctl" / "shipped" / shared_tiny.name
    expected = {path.relative_to(shared_tiny) for path in shared_tiny.rglob("*") if path.is_file()}
    assert {path.relative_to(shipped) for path in shipped.rglob("*") if path.is_file()} == expected


def test_entry_points_lead_to_files(site: Path) -> None:
    points = configparser.ConfigParser()
    points.read(next(site.glob("hmerctl-*.dist-info")) / "entry_points.txt")
    assert points["console_scripts"]["hmerctl"] == "hmerctl.cli:app" and "onnx" in points["hmerctl.targets"]
    modules = [point.partition(":")[0] for group in points.values() for point in group.values()]
    assert [name for name in modules if not (site / (name.replace(".", "/") + ".py")).is_file()] == []


def test_a_base_install_recognises(site: Path, tmp_path: Path) -> None:
    """The command line from the wheel, without any package of the extras."""
    extras = ("torch", "lightning", "onnx", "onnxscript", "scipy", "matplotlib", "pyarrow", "safetensors", "tqdm")
    code = f"""
import runpy, sys
for name in {extras!r}:
    sys.modules[name] = None
sys.argv = ["hmerctl", "recognize", {str(site / "hmerctl/runtime/samples/fraction.json")!r}]
import hmerctl
assert hmerctl.__file__.startswith({str(site)!r}), hmerctl.__file__
runpy.run_module("hmerctl", run_name="__main__")
"""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\t")[1] == "x^{2}+y"
