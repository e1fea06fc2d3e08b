"""
Into a network: fold, hook, export
==================================

A removal is an affine map, and so is the layer after it. Together they are one layer, so the deployed network costs
nothing extra.
"""

# %%
# A network whose last layer learnt the concept
# ---------------------------------------------
# A frozen encoder, and a last layer trained on rows where concept and task are correlated.

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from unspur import JSE, surgery
from unspur.datasets import make_toy
from unspur.metrics import group_accuracy
from unspur.report import figures

train, test = make_toy(4000, rho=0.9, random_state=0), make_toy(10_000, rho=0.0, random_state=1)
x, x_test = (torch.tensor(rows.Z, dtype=torch.float32) for rows in (train, test))
y = torch.tensor(train.y)

torch.manual_seed(0)
encoder = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.Tanh()).requires_grad_(False)
head = torch.nn.Linear(32, 2)


def train_layer(layer, rows):
    """Full-batch Adam on the cross-entropy."""
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(layer(rows), y).backward()
        optimiser.step()


Z = encoder(x)
train_layer(head, Z)
network = torch.nn.Sequential(*encoder, head)

# %%
# Fit on the embeddings, fold into the next layer
# -----------------------------------------------
# Removers take tensors. :func:`unspur.surgery.fold` returns a new linear layer.

jse = JSE(random_state=0).fit(Z, train.y, concept=train.concept)
folded = surgery.fold(jse, head)
print(jse.removal_, "and", head, "become", folded)

with torch.no_grad():
    difference = (head(jse.transform(encoder(x_test))) - folded(encoder(x_test))).abs().max()
print(f"largest difference between removal and layer, and the folded layer: {difference:.1e}")

# %%
# The old layer was trained on rows with the concept. A new layer, trained on cleaned rows, folds in the same way.

retrained = torch.nn.Linear(32, 2)
train_layer(retrained, jse.transform(Z))
networks = {
    "as it was": network,
    "folded": torch.nn.Sequential(encoder, folded),
    "retrained and folded": torch.nn.Sequential(encoder, surgery.fold(jse, retrained)),
}
judged = {}
for name, model in networks.items():
    with torch.no_grad():
        judged[name] = group_accuracy(test.y, model(x_test).argmax(1).numpy(), test.concept)
    print(f"{name:>20}: average {judged[name].average:.1%}, worst group {judged[name].worst:.1%}")

# %%

bars = figures.group_bars(judged, width="page")

# %%
# Without changing the network
# ----------------------------
# :func:`unspur.surgery.attach` applies the removal to the output of a module inside a ``with`` block.
# :func:`unspur.surgery.as_module` turns the removal into a module.

with torch.no_grad(), surgery.attach(network, "1", jse):
    hooked = network(x_test)
with torch.no_grad():
    same = networks["folded"](x_test)
print(f"hooked and folded differ by at most {(hooked - same).abs().max():.1e}")

# %%
# To ONNX
# -------
# Removal and head as one product, for any runtime.

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "head.onnx"
    surgery.to_onnx(jse, file, head=head)
    session = onnxruntime.InferenceSession(file)
    with torch.no_grad():
        rows = encoder(x_test).numpy()
    (scores,) = session.run(["scores"], {"rows": rows})
print(f"{scores.shape[0]:,} rows; largest difference to torch: {np.abs(scores - same.numpy()).max():.1e}")
