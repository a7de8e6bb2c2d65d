"""Audit a network: what leaks without a defense, with one, and with random policies."""

from pathlib import Path

import gradveil as gv

data = gv.load("fashion-mnist-tenth")
plan = gv.AuditPlan("mlp-16", (gv.defenses.Prune(0.9),), attacks=(gv.attacks.ClosedForm(),), images=4)
study = gv.audit(plan, data, Path("runs/audit-example"))
print(study.headline)
print(f"page: {gv.write_page(study)}")
