"""LightGBM."""

import lightgbm
from data import SEED, VX, Vy, X, y

import levelbench

wanted = {"objective": "multiclass", "num_class": 10, "metric": "multi_error", "seed": SEED, "verbose": -1}
train, valid = lightgbm.Dataset(X, y), lightgbm.Dataset(VX, Vy)
model = lightgbm.train(wanted, train, 60, valid_sets=[valid], callbacks=levelbench.callback("lightgbm"))
levelbench.predict(lambda inputs: model.predict(inputs.reshape(-1, 64)))
