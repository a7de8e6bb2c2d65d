"""Settings of an attack that are tried first: a network is not called safe because the attack was weak."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import gradveil as gv
from gradveil.auditing.verdicts import FAILED, LEAKS
from gradveil.attacks import fast
from gradveil.types import Dataset, ImageSet

# A user's own file: a small residual network with group norm.
NETS = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, out, 3, stride, 1), nn.Conv2d(out, out, 3, 1, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, out), nn.GroupNorm(4, out)])
        self.skip = nn.Conv2d(width, out, 1, stride)

    def forward(self, x):
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(inner)) + self.skip(x))


class GroupNormResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 1, 1), nn.GroupNorm(4, 8)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.norm(self.stem(x)))).mean((2, 3)))
"""
SIDE = 16


def photographs(count: int, seed: int) -> ImageSet:
    """Smooth colours at three scales, in two classes."""
    chance = torch.Generator().manual_seed(seed)
    noises = ((1.0, torch.randn(count, 3, 3, 3, generator=chance)), (0.7, torch.randn(count, 3, 5, 5, generator=chance)))
    pixels = sum(
        weight * F.interpolate(noise, size=(SIDE, SIDE), mode="bicubic", align_corners=True) for weight, noise in noises
    )
    images = (255 * (0.5 + 0.2 * torch.as_tensor(pixels)).clamp(0, 1)).round().to(torch.uint8)
    return ImageSet(images, torch.arange(count) % 2, ("day", "night"))


@pytest.fixture(scope="module")
def photos() -> Dataset:
    return Dataset("photographs", photographs(120, 1), photographs(60, 2))
