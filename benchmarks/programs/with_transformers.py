"""Hugging Face's Trainer."""

import tempfile

import torch
import transformers
from data import SEED, VX, Vy, X, y

import levelbench


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def forward(self, x, labels=None):
        logits = self.net(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def examples(inputs, labels):
    return [{"x": x, "labels": int(label)} for x, label in zip(inputs, labels, strict=True)]


def accuracy(found):
    return {"accuracy": float((found.predictions.argmax(1) == found.label_ids).mean())}


transformers.set_seed(SEED)
model = Model()
args = transformers.TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    num_train_epochs=12,
    per_device_train_batch_size=64,
    learning_rate=0.01,
    eval_strategy="epoch",
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    remove_unused_columns=False,
    label_names=["labels"],
    disable_tqdm=True,
)
data = {"train_dataset": examples(X, y), "eval_dataset": examples(VX, Vy)}
trainer = transformers.Trainer(model, args, compute_metrics=accuracy, **data)
trainer.add_callback(levelbench.callback("transformers"))
trainer.train()
levelbench.predict(lambda inputs: model.net(torch.from_numpy(inputs.reshape(-1, 64))).argmax(1))
