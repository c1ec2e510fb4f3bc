"""A loop in PyTorch."""

import torch
from data import SEED, VX, Vy, X, y

import levelbench

torch.manual_seed(SEED)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
dataset = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
loader = torch.utils.data.DataLoader(dataset, 64, shuffle=True)
loader = levelbench.autophase(model, optimizer, loader)
for epoch in range(12):
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(torch.from_numpy(VX)).argmax(1).numpy() == Vy).mean()
    print(f"epoch {epoch + 1}: accuracy {accuracy:.4f}")
levelbench.predict(lambda inputs: model(torch.from_numpy(inputs.reshape(-1, 64))).argmax(1))
