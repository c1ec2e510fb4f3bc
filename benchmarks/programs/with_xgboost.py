"""XGBoost."""

import xgboost
from data import SEED, VX, Vy, X, y

import levelbench

wanted = {"objective": "multi:softprob", "num_class": 10, "eval_metric": "merror", "seed": SEED}
train, evals = xgboost.DMatrix(X, y), [(xgboost.DMatrix(VX, Vy), "val")]
model = xgboost.train(wanted, train, 60, evals=evals, callbacks=[levelbench.callback("xgboost")])
levelbench.predict(lambda inputs: model.predict(xgboost.DMatrix(inputs.reshape(-1, 64))))
