"""What is optimised: token loss and dense symbol loss, with averaged weights and validation by real decoding."""

import copy
import math
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.vocabulary import PAD, Vocabulary
from hmerctl.train.batches import Batch
from hmerctl.train.config import Preset
from hmerctl.train.models.recognizer import PARTS, Recognizer
from hmerctl.train.validation import Read, ValidationBatch, figures, read_batch


def rate_factor(progress: float, step: int, warmup_steps: int, decay: float) -> float:
    """Learning rate relative to its peak: linear warm-up, constant, then half a cosine down to zero.

    Args:
        progress: part of the budget that is used, 0 to 1.
        step: number of the step, for the warm-up.
        warmup_steps: length of the warm-up.
        decay: part of the budget at its end over which the rate falls.
    """
    warm = min((step + 1) / max(warmup_steps, 1), 1.0)
    falling = min(max((progress - (1 - decay)) / decay, 0.0), 1.0) if decay > 0 else 0.0
    return warm * 0.5 * (1 + math.cos(math.pi * falling))


class TrainingModule(pl.LightningModule):
    """The recogniser, the heads that exist only in training, and the averaged copy that is shipped.

    Args:
        preset: model and training settings.
        vocabulary: what the ids mean.
        progress: tells which part of the budget is used, 0 to 1.
    """

    def __init__(self, preset: Preset, vocabulary: Vocabulary, progress: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__()
        self.settings, self.progress = preset.train, progress
        self.model = Recognizer(preset.model, vocabulary)
        channels = self.model.encoder.channels
        dense = self.settings.dense_weight > 0 and "encoder" not in self.settings.frozen
        self.dense = nn.Conv2d(channels, len(vocabulary), 1) if dense else None
        self.averaged = copy.deepcopy(self.model).requires_grad_(False).eval()
        for part in self.settings.frozen:
            getattr(self.model, part).requires_grad_(False)
        if not any(p.requires_grad for p in self.model.parameters()):
            raise ConfigError("train.frozen leaves nothing to train; name fewer parts")
        self.to(memory_format=torch.channels_last)
        self.train()

    def load_weights(self, weights: dict[str, Tensor], parts: tuple[str, ...] = PARTS) -> list[str]:
        """Start from a checkpoint's weights.

        Args:
            weights: a recogniser's state.
            parts: the parts to take; the others stay as they are.

        Returns:
            the names of weights that stay as they are: of other parts, not in the checkpoint, or of another shape.
        """
        known = self.model.state_dict()
        weights = {name: value for name, value in weights.items() if name.partition(".")[0] in parts}
        weights = self.model.decoder.adapted(weights)
        fitting = {k: v for k, v in weights.items() if k in known and known[k].shape == v.shape}
        self.model.load_state_dict(fitting, strict=False)
        self.averaged.load_state_dict(self.model.state_dict())
        return sorted(set(known) - set(fitting))

    def train(self, mode: bool = True) -> "TrainingModule":
        """Training mode; the averaged copy, frozen parts and frozen batch norm stay in evaluation mode."""
        super().train(mode)
        self.averaged.eval()
        for part in self.settings.frozen:
            getattr(self.model, part).eval()
        if self.settings.freeze_norm:
            for module in self.model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        return self

    def losses(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Token loss and dense loss (scalars), and logits (batch, time, vocabulary)."""
        features, mask = self.model.features(batch.raster.float() / 255, batch.size)
        stretched = batch.stretched if self.settings.views is not None else None
        logits = self.model.decoder(self.model.remember(features, mask, stretched), batch.inputs)
        token_loss = F.cross_entropy(
            logits.flatten(0, 1).float(),
            batch.targets.flatten(),
            ignore_index=PAD,
            label_smoothing=self.settings.smoothing,
            reduction="sum",
        )
        # A mean over the whole batch of all devices; DDP averages over devices, so this part counts that often.
        token_loss = token_loss * self.trainer.world_size / batch.tokens_in_batch
        if self.dense is None:
            return token_loss, token_loss.new_zeros(()), logits
        scores = self.dense(features).float()
        weight = torch.where(batch.dense > 0, 1.0, self.settings.dense_blank) * mask[:, 0]
        per_cell = F.cross_entropy(scores, batch.dense, reduction="none")
        return token_loss, (per_cell * weight).sum() / weight.sum(), logits

    def training_step(self, batch: Batch, index: int) -> Tensor:
        """Lightning's hook."""
        token_loss, dense_loss, logits = self.losses(batch)
        with torch.no_grad():
            real = batch.targets != PAD
            # No selection by a mask: its size would have to come back from a GPU, which then waits in every step.
            accuracy = ((logits.argmax(2) == batch.targets) & real).sum() / real.sum()
        loss = token_loss + self.settings.dense_weight * dense_loss
        rate = self.optimizers().param_groups[0]["lr"]  # type: ignore[union-attr]
        figures = {"loss": token_loss, "dense_loss": dense_loss, "token_accuracy": accuracy, "learning_rate": rate}
        shared = self.trainer.world_size > 1
        self.log_dict(figures, prog_bar=True, batch_size=len(batch.raster), sync_dist=shared)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Move the averaged weights; the average is young at first and must not remember the start."""
        decay = min(self.settings.ema, (1 + self.global_step) / (10 + self.global_step))
        with torch.no_grad():
            ours: list[Tensor] = list(self.averaged.parameters())
            theirs: list[Tensor] = list(self.model.parameters())
            torch._foreach_lerp_(ours, theirs, 1 - decay)
            for kept, new in zip(self.averaged.buffers(), self.model.buffers(), strict=True):
                kept.copy_(new)

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clip by the global norm. Lightning's own refuses fused optimisers, for a reason that bf16 does not have."""
        if gradient_clip_val:
            nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val, foreach=True)

    def on_validation_epoch_start(self) -> None:
        """Forget the last validation's readings."""
        self.read: list[Read] = []

    def validation_step(self, batch: ValidationBatch, index: int) -> None:
        """Decode with the averaged weights."""
        self.read += read_batch(self.averaged, batch)

    def on_validation_epoch_end(self) -> None:
        """Log the figures of all devices' readings as ``valid_<figure>``."""
        shares = [self.read]
        if self.trainer.world_size > 1:
            shares = [[] for _ in range(self.trainer.world_size)]
            torch.distributed.all_gather_object(shares, self.read)
        found = figures([read for share in shares for read in share])
        for name, value in found.items():
            self.log(f"valid_{name}", value, prog_bar=name == "exprate", rank_zero_only=True)

    def configure_optimizers(self) -> Any:
        """AdamW; no weight decay on biases, norms and embeddings' scale (tensors of one axis)."""
        s = self.settings
        trained = [p for p in self.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trained if p.ndim > 1], "weight_decay": s.weight_decay},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ]
        kind = {"fused": True} if self.device.type == "cuda" else {"foreach": True}
        optimizer = AdamW(groups, lr=s.learning_rate, betas=s.betas, **kind)
        schedule = LambdaLR(optimizer, lambda step: rate_factor(self.progress(), step, s.warmup_steps, s.decay))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
