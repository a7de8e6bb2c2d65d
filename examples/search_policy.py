"""Search for policies whose gradients say little about the image."""

import gradveil as gv

data = gv.load("fashion-mnist-tenth")
model = gv.untrained_model("lenet", data)
scorer = gv.Scorer(trained=model, untrained=model, held_out=data.test, images=8, batches=2)
found = gv.search(scorer, plan=gv.SearchPlan(policies=6, keep=2, fresh=2), workers=1)
for candidate in found.best:
    print(f"{candidate.policy}: S_pri {candidate.privacy}, S_acc {candidate.accuracy}")
