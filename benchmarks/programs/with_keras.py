"""Keras, on JAX."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
from data import SEED, VX, Vy, X, y

import levelbench

keras.utils.set_random_seed(SEED)
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"])
model.fit(X, y, 64, 12, verbose=0, validation_data=(VX, Vy), callbacks=[levelbench.callback("keras")])
levelbench.predict(lambda inputs: model.predict(inputs.reshape(-1, 64), verbose=0))
