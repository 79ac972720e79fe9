"""onnxruntime on graphs in memory, set up the same wherever graphs are calibrated, compared or timed."""

import onnx
import onnxruntime

from hmerctl.runtime.engines.onnx import PROVIDER


def cpu_session(model: onnx.ModelProto, threads: int = 1, optimised: bool = True) -> onnxruntime.InferenceSession:
    """A session on the CPU.

    Args:
        threads: of each operator; operators run one after the other.
        optimised: False computes node by node, without fusions.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[PROVIDER])
