"""A model is trained, saved, loaded and trained on; tensors that are mapped."""

import torch

torch.manual_seed(1)
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
data = torch.randn(256, 20)


def train(model, optimizer, steps):
    for _ in range(steps):
        loss = ((model(data) - data.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def new():
    model = torch.nn.Sequential(torch.nn.Linear(20, 200), torch.nn.ReLU(), torch.nn.Linear(200, 1))
    return model, torch.optim.Adam(model.parameters())


model, optimizer = new()
print(train(model, optimizer, 20))
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
model, optimizer = new()
found = torch.load("checkpoint.pt")
model.load_state_dict(found["model"])
optimizer.load_state_dict(found["optimizer"])
print(train(model, optimizer, 20))
torch.save(torch.randn(1000, 1000), "large.pt")
print(torch.load("large.pt", mmap=True).sum().item())
