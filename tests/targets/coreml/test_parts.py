"""Every part that a preset can choose converts, within Core ML's limits, and says what PyTorch says.

Position encodings and contexts act in the encoder graph; a relative bias and the decoders in the step graph too.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_grid import EDGE, GRID, TRANSFORMER
from torch import nn

from hmerctl.export.graphs import take_apart
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.targets.coreml.check import HIGHEST_RANK
from hmerctl.targets.coreml.convert import PRECISIONS, convert
from hmerctl.targets.coreml.mil import MilPackage
from hmerctl.targets.coreml.neural_engine import RULES
from hmerctl.targets.coreml.target import wide_tensors
from hmerctl.train.models.recognizer import ModelConfig, Recognizer

pytest.importorskip("coremltools", reason="coremltools is not installed: pip install 'hmerctl[export]'")


def label(case: tuple[dict, str]) -> str:
    given, role = case
    return " ".join(["-".join(str(v) for v in options.values())[:24] for options in given.values()] + [role])


@pytest.mark.parametrize("case", GRID, ids=label)
def test_part(case: tuple[dict, str], tmp_path: Path) -> None:
    given, role = case
    torch.manual_seed(0)
    config = ModelConfig(**{"encoder": EDGE, "decoder": TRANSFORMER, **given})
    model = Recognizer(config, Vocabulary(("1", "2", "+"))).eval()
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.3)
    encoder, step = take_apart(model)
    graph = encoder if role == "encoder" else step
    stride = graph.stride
    # Two-dimensional scans are unrolled: a map of 2 x 4 cells says as much as a larger one.
    tall, wide = (16, 32) if given.get("context", {}).get("name", "").startswith("md-") else (32, 48)
    sizes = {"batch": 1, "height": tall, "width": wide}
    if role == "step":
        sizes = {"beam": 2, "rows": tall // stride, "columns": wide // stride, "time": 16}
    inputs = dict(zip((spec.name for spec in graph.inputs), graph.example(sizes), strict=True))
    for tensor in inputs.values():
        if tensor.is_floating_point():
            tensor.uniform_()
    if role == "encoder":
        inputs["size"] = torch.tensor([[tall - 2, wide - 9]], dtype=torch.int32)
    names = [spec.name for spec in graph.outputs]
    model_ = convert(graph.module, inputs, names, PRECISIONS["fp32"], 18, wide_tensors(model))
    model_.save(str(tmp_path / "p.mlpackage"))
    function = MilPackage(tmp_path / "p.mlpackage").function()
    assert {operation.op_type for operation in function.operations} <= set(RULES)
    assert max(len(t.shape) for op in function.operations for t in op.gives) <= HIGHEST_RANK
    found = function({name: tensor.numpy() for name, tensor in inputs.items()})
    with torch.no_grad():
        expected = graph.module(*inputs.values())
    for name, tensor in zip(names, expected, strict=True):
        np.testing.assert_allclose(found[name], tensor.numpy(), atol=1e-5, err_msg=name)
