"""Language networks that are small enough to compare quickly."""

from levelbench.networks import zoo


def small_lstm_lm(**options):
    return zoo.build("lstm-lm-small", vocabulary=23, width=8, **options)


def small_bert(**options):
    return zoo.build("bert-tiny", vocabulary=31, width=16, positions=12, **options)


def small_gpt2():
    return zoo.build("gpt2-tiny", vocabulary=29, width=16, positions=12)


def small_llama():
    return zoo.build("llama-tiny", vocabulary=29, width=16, inner=24, positions=12)


def small_moe(**options):
    return zoo.build("moe-tiny", **{"vocabulary": 29, "width": 16, "inner": 24, "positions": 12} | options)


def small_transformer():
    return zoo.build("transformer-tiny", vocabulary=29, width=16, inner=24, positions=12)
