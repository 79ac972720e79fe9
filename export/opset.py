"""From opset 18, which the exporter writes, down to opset 17, which every runtime in use reads.

The converter that ships with onnx knows no way down for Split; the few operators that differ are listed here.
"""

import onnx
from onnx import helper, numpy_helper

from hmerctl.runtime.errors import HmerError

_REDUCTIONS = {f"Reduce{kind}" for kind in "L1 L2 LogSum LogSumExp Max Mean Min Prod SumSquare".split()}
_NEW_IN_18 = {"BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "CenterCropPad", "Col2Im", "GroupNormalization"}
_NEW_IN_18 |= {"Mish", "OptionalGetElement", "OptionalHasElement", "Resize"}


class OpsetError(HmerError):
    """A graph uses what opset 17 does not have."""


def lower_to_17(model: onnx.ModelProto) -> None:
    """Rewrite an opset 18 model in place.

    Raises:
        OpsetError: naming an operator that has no equal in opset 17.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in _NEW_IN_18 or (node.op_type == "Pad" and any(node.input[3:])):  # its axes are new
            raise OpsetError(f"{node.op_type} ({node.name}) is not available in opset 17; express it otherwise")
        if node.op_type == "Split":
            _drop_attribute(node, "num_outputs")
        elif node.op_type in _REDUCTIONS:
            if len(node.input) == 2:
                axes = numpy_helper.to_array(constants[node.input[1]]).tolist()
                del node.input[1]
                node.attribute.append(helper.make_attribute("axes", axes))
            _drop_attribute(node, "noop_with_empty_axes")
    used = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    for entry in model.opset_import:
        if entry.domain == "":
            entry.version = 17


def _drop_attribute(node: onnx.NodeProto, name: str) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
