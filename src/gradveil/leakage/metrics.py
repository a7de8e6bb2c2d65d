"""How much of an image a reconstruction gives away.

Images are floats in [0, 1] of shape (B, C, H, W); every result has one value per image.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_C1, _C2 = 0.01**2, 0.03**2
_DEVIATION, _REACH = 1.5, 5  # of the window, in pixels


def mse(guess: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error, (B,)."""
    return (guess - truth).double().square().mean((1, 2, 3))


def psnr(guess: Tensor, truth: Tensor) -> Tensor:
    """10 log10(1 / MSE) in dB, (B,); higher is closer, 200 for equal images so that every record is a finite number."""
    return -10 * torch.log10(mse(guess, truth).clamp_min(1e-20))


def ssim(guess: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity (Wang et al., 2004), (B,); 1 for equal images.

    The mean over all windows, weighed by a Gaussian with a deviation of 1.5 pixels, of

        (2 m_g m_t + c1) (2 s_gt + c2) / ((m_g^2 + m_t^2 + c1) (s_g^2 + s_t^2 + c2)),   c1 = 0.01^2, c2 = 0.03^2

    with the means m, variances s^2 and covariance s_gt of the two images in the window. Torchmetrics computes the same, but
    importing it takes every worker as long as importing torch.
    """
    # The window is mirrored at the border, which takes more than the five pixels that it reaches.
    lacking = [max(0, _REACH + 1 - size) for size in truth.shape[:1:-1]]
    guess, truth = (
        F.pad(F.pad(images, (0, lacking[0], 0, lacking[1]), mode="replicate"), (_REACH,) * 4, mode="reflect")
        for images in (guess, truth)
    )
    moments = torch.cat((guess, truth, guess * guess, truth * truth, guess * truth))
    channels = guess.shape[1]
    window = _gaussian_window(moments).expand(channels, 1, -1, -1)
    mean_g, mean_t, square_g, square_t, product = F.conv2d(moments, window, groups=channels).chunk(5)
    variances = (square_g - mean_g**2).clamp_min(0) + (square_t - mean_t**2).clamp_min(0)
    covariance = product - mean_g * mean_t
    numerator = (2 * mean_g * mean_t + _C1) * (2 * covariance + _C2)
    return (numerator / ((mean_g**2 + mean_t**2 + _C1) * (variances + _C2))).flatten(1).mean(1)


def _gaussian_window(like: Tensor) -> Tensor:
    places = torch.arange(-_REACH, _REACH + 1, dtype=like.dtype, device=like.device)
    weights = torch.exp(-((places / _DEVIATION) ** 2) / 2)
    weights = weights / weights.sum()
    return torch.outer(weights, weights)
