"""Train softmax regression on handwritten digits: a program that knows nothing of ditbench."""

import argparse
import signal
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--steps", type=int, default=4000)
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--resume", type=Path)
options = parser.parse_args()

images, labels = load_digits(return_X_y=True)
images, classes = images / 16, np.eye(10)[labels]
first, weights = 0, np.zeros((64, 10))
if options.resume:
    saved = np.load(options.resume)
    first, weights = int(saved["step"]), saved["weights"]
signals = []
signal.signal(signal.SIGUSR1, lambda number, _: signals.append(number))

for step in range(first + 1, options.steps + 1):
    rows = np.random.default_rng(step).integers(len(images), size=options.batch)
    scores = np.exp(images[rows] @ weights)
    scores /= scores.sum(axis=1, keepdims=True)
    loss = -np.log((scores * classes[rows]).sum(axis=1)).mean()
    weights += options.lr / options.batch * images[rows].T @ (classes[rows] - scores)
    if step % 20 == 0:
        print(f"step {step} loss {loss:.4f}")
    if signals or step == options.steps:
        np.savez(options.out / "last.npz", step=step, weights=weights)
        break
