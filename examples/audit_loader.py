"""Audit a model object of your own with the data loader of its training, which normalises its images."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import gradveil as gv

images, labels = torch.rand(60, 3, 8, 8), torch.arange(60) % 3
loader = DataLoader(TensorDataset((images - 0.5) / 0.25, labels), batch_size=20, shuffle=True)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
normalized = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
study = gv.audit_model(model, loader, "runs/mine", attacks=[gv.attacks.ClosedForm()], images=3, **normalized)
print(study.headline)
