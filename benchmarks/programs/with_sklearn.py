"""scikit-learn's partial_fit."""

from data import SEED, VX, Vy, X, y
from sklearn.neural_network import MLPClassifier

import levelbench

settings = {"solver": "sgd", "learning_rate_init": 0.1, "batch_size": 64, "random_state": SEED}
model = MLPClassifier((64,), **settings)
model.partial_fit, model.score = levelbench.phases(train=model.partial_fit, evaluate=model.score)
for epoch in range(12):
    model.partial_fit(X, y, classes=range(10))
    print(f"epoch {epoch + 1}: accuracy {model.score(VX, Vy):.4f}")
levelbench.predict(lambda inputs: model.predict(inputs.reshape(-1, 64)))
