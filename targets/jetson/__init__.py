"""Target ``jetson-trt``: strongly typed ONNX graphs that TensorRT builds into engines on the device."""
