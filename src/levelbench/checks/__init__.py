"""What all checks share, whether of an operator, a network, an optimizer, a task, a recipe or a scheme.

A *subject* is what is checked. Each level has its own kind: an operator and a scheme share nothing but a name.
A *probe* checks one thing about it: a name, and a function that yields findings. A *finding* has one of four statuses:

- ``passed``: correct, as far as it was checked;
- ``failed``: wrong, with what was found and what to do about it;
- ``noted``: observed, but not judged;
- ``not tried``: could not be checked, with the reason. This is always reported.

A finding's *case* is what it was found with (inputs, a rank, a dtype), if that is not the whole subject. Probes leave
their name out of their findings; :func:`run_probes` fills it in. If a probe raises, that is a finding too: a refusal
(``UnsupportedError``, ``MissingError``) is ``not tried``, anything else ``failed``. So one broken part does not hide
what is wrong with the others. A *report* holds all findings on one subject in the order of the probes; it has one JSON
form and one way to become an exception, and every ``levelbench check`` exits with :func:`exit_code`.

Code that may crash or hang runs in its own process (:mod:`levelbench.checks.isolation`), with a time limit and a memory
cap. :mod:`levelbench.checks.arrays` compares numbers. Each level contains only its own probes.
"""
