"""Transform private images with a policy before a network sees them."""

import gradveil as gv

data = gv.load("fashion-mnist-tenth[:5%]")
policy = gv.Policy.parse("3-1-7+43-18-18")
images = policy(data.train.images[:8], seed=0)
print(f"{policy.names()}: {len(images)} images of shape {tuple(images.shape[1:])}")

dataset = gv.PolicyDataset(data.train, policy, seed=0)
image, label = dataset[0]
print(f"the first of {len(dataset)} as a loader gets it: label {label}, mean {image.float().mean():.0f}")
