"""LightGBM."""

import lightgbm
from data import VX, Vy, X, y

import levelbench

with levelbench.track("programs", target={"multi_error": 0.05}, crossing="final") as run:
    wanted = {"objective": "multiclass", "num_class": 10, "metric": "multi_error", "seed": run.seed, "verbose": -1}
    callbacks = run.callback("lightgbm", examples=len(X))
    valid = [lightgbm.Dataset(VX, Vy)]
    model = lightgbm.train(wanted, lightgbm.Dataset(X, y), 60, valid_sets=valid, callbacks=callbacks)
    levelbench.predict(lambda inputs: model.predict(inputs.reshape(-1, 64)))
