"""PyTorch Lightning."""

import lightning
import torch
from data import SEED, VX, Vy, X, y

import levelbench


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def loader(inputs, labels, size, shuffle):
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(inputs), torch.from_numpy(labels))
    return torch.utils.data.DataLoader(dataset, size, shuffle=shuffle)


lightning.seed_everything(SEED, verbose=False)
model = Model()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = lightning.Trainer(max_epochs=12, callbacks=[levelbench.callback("lightning")], **quiet)
trainer.fit(model, loader(X, y, 64, True), loader(VX, Vy, len(Vy), False))
levelbench.predict(lambda inputs: model.net(torch.from_numpy(inputs.reshape(-1, 64))).argmax(1))
