"""XGBoost."""

import xgboost
from data import VX, Vy, X, y

import levelbench

with levelbench.track("programs", target={"merror": 0.05}, crossing="final") as run:
    wanted = {"objective": "multi:softprob", "num_class": 10, "eval_metric": "merror", "seed": run.seed}
    callbacks = [run.callback("xgboost", examples=len(X))]
    evals = [(xgboost.DMatrix(VX, Vy), "val")]
    model = xgboost.train(wanted, xgboost.DMatrix(X, y), 60, evals=evals, verbose_eval=False, callbacks=callbacks)
    levelbench.predict(lambda inputs: model.predict(xgboost.DMatrix(inputs.reshape(-1, 64))))
