"""A small random model and inks of our own, for the tests of exports and targets."""

import numpy as np
import torch
from torch import Tensor, nn
from typed import as_a

from hmerctl.export.source import Source
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.checkpoint import CheckpointInfo
from hmerctl.train.config import Preset
from hmerctl.train.models.recognizer import ModelConfig, Recognizer

VOCABULARY = Vocabulary(tuple(r"+ - 0 1 2 3 = a b x y ^ _ { } \frac \alpha".split()))
ENCODER = {"name": "edge", "stem": 4, "middle": 8, "middle_blocks": 1, "top": 8, "top_blocks": 1, "channels": 16}
DECODER = {"name": "transformer", "layers": 2, "heads": 2, "width": 16, "inner": 24}


def tiny_source(refinement: int = 4, seed: int = 0) -> Source:
    """A small random recogniser whose every part matters: no weight is zero, batch norms have statistics."""
    torch.manual_seed(seed)
    config = ModelConfig(encoder=ENCODER, decoder={**DECODER, "refinement": refinement})
    model = Recognizer(config, VOCABULARY).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            nn.init.normal_(parameter, mean=1.0 if name.endswith("weight") else 0.0, std=0.2)
        elif parameter.dim() > 1:
            nn.init.normal_(parameter, std=1.5 * parameter[0].numel() ** -0.5)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(as_a(Tensor, module.running_mean), std=0.2)
            nn.init.uniform_(as_a(Tensor, module.running_var), 0.5, 2.0)
    return Source(model, CheckpointInfo(Preset("tiny", model=config), VOCABULARY, {"data": "nothing"}))


def tiny_ink(seed: int, strokes: int = 4) -> Ink:
    """Scribbles: a few smooth random strokes in a row."""
    rng = np.random.default_rng(seed)
    shapes = []
    for i in range(strokes):
        angle = np.linspace(0, rng.uniform(3, 7), 24)
        radius = rng.uniform(6, 12, 2)
        x = radius[0] * np.cos(angle * rng.uniform(0.5, 1.5)) + 30 * i
        y = radius[1] * np.sin(angle * rng.uniform(0.5, 1.5)) + rng.uniform(-8, 8)
        shapes.append(np.stack([x, y], axis=1))
    return Ink(tuple(shapes), id=f"scribble-{seed}")
