"""How much of an image a reconstruction gives away.

Images are floats in [0, 1] of shape (B, C, H, W); every result has one value per image.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.functional.image import structural_similarity_index_measure


def mse(guess: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error, (B,)."""
    return (guess - truth).double().square().mean((1, 2, 3))


def psnr(guess: Tensor, truth: Tensor) -> Tensor:
    """10 log10(1 / MSE) in dB, (B,); higher is closer, 200 for equal images so that every record is a finite number."""
    return -10 * torch.log10(mse(guess, truth).clamp_min(1e-20))


def ssim(guess: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity with a Gaussian window (k1 = .01, k2 = .03), (B,); 1 for equal images."""
    # The window is mirrored at the border, which takes more than the five pixels that it reaches.
    lacking = [max(0, 6 - size) for size in truth.shape[:1:-1]]
    guess, truth = (F.pad(images, (0, lacking[0], 0, lacking[1]), mode="replicate") for images in (guess, truth))
    value = structural_similarity_index_measure(guess, truth, data_range=1.0, reduction="none", k1=0.01, k2=0.03)
    assert isinstance(value, Tensor)
    return value.reshape(len(guess))
