"""scikit-learn's partial_fit."""

from data import VX, Vy, X, y
from sklearn.neural_network import MLPClassifier

import levelbench

with levelbench.track("programs", target={"accuracy": 0.95}, crossing="final") as run:
    settings = {"solver": "sgd", "learning_rate_init": 0.1, "batch_size": 64, "random_state": run.seed}
    model = MLPClassifier((64,), **settings)
    for _epoch in range(12):
        with run.phase("train"):
            model.partial_fit(X, y, classes=range(10))
        run.evaluate(lambda: model.score(VX, Vy))
    levelbench.predict(lambda inputs: model.predict(inputs.reshape(-1, 64)))
