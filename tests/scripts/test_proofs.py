"""The tables of docs/targets/README.md are what the targets say of themselves."""

import pytest
from script_files import load_script

from hmerctl.targets.base import find, names

proofs = load_script("proofs")


@pytest.mark.parametrize("name", ["proofs", "refusals"])
def test_the_page_is_up_to_date(name: str) -> None:
    text = proofs.PAGE.read_text(encoding="utf-8").partition(f"<!-- {name}: by scripts/proofs.py -->\n")[2]
    assert text.partition(proofs.END)[0] == proofs.tables()[name], "run scripts/proofs.py"


def test_every_target_of_ours_has_a_row_for_each_precision() -> None:
    assert set(proofs.OURS) <= set(names())
    rows = proofs.proofs([find(name) for name in proofs.OURS]).splitlines()[2:]
    wanted = [f"| `{name}` | {precision} |" for name in proofs.OURS for precision in find(name).precisions]
    assert len(rows) == len(wanted) and all(row.startswith(start) for row, start in zip(rows, wanted, strict=True))


def test_a_stand_in_is_named_and_a_device_that_was_not_run_says_so() -> None:
    row = proofs.proofs([find("coreml")]).splitlines()[2]
    assert row.count("stand-in: MIL evaluator") == 4 and row.endswith("| Core ML: **not run** |")
    assert "stand-in" not in proofs.proofs([find("onnx")])
