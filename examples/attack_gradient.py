"""Rebuild an image from the gradient that a participant shares."""

import gradveil as gv

data = gv.load("fashion-mnist-tenth")
model = gv.untrained_model("convnet-16", data).eval()
batch = gv.Batch(data.test.images[:1] / 255, data.test.labels[:1])
gradients = gv.share(model, batch)
attack = gv.attacks.fast(iterations=60)
found = gv.invert(model, gradients, batch.labels, attack=attack, image_shape=data.test.image_shape)
print(f"PSNR to the private image: {gv.psnr(found.images, batch.images).item():.1f} dB")
