"""What every check shares, whatever is checked: an operator, a network, an optimizer, a task, a recipe or a scheme.

A *subject* is what is checked; each level has its own, for an operator and a scheme have nothing in common but a name.
A *probe* asks one thing of it: a name, and a function that yields findings. A *finding* has one of four statuses:

- ``passed``: right, as far as it was looked at;
- ``failed``: wrong, with what was found and what to do about it;
- ``noted``: seen, and not judged;
- ``not tried``: could not be looked at, with the reason. What was not tried is always said.

A finding's *case* is what it was found with (inputs, a rank, a dtype), where that is not the whole subject. Probes
leave their name out of their findings; :func:`run_probes` fills it in. What a probe raises is a finding as well: a
refusal (``UnsupportedError``, ``MissingError``) is ``not tried``, anything else ``failed``. So one broken part does not
hide what is wrong with the others. A *report* is all findings on one subject in the order of the probes; it has one
JSON form and one way to become an exception, and :func:`exit_code` is that of every ``levelbench check``.

Code that may crash or hang runs in a process of its own (:mod:`levelbench.checks.isolation`), which ends at a time
limit and at a memory cap. :mod:`levelbench.checks.arrays` judges numbers. A level keeps its probes and nothing else.
"""
