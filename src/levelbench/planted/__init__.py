"""Parts with one planted fault each, and right ones, for ``levelbench check --self-test``.

They are written as users write parts, and are data: their files are executed by the checks, never imported by the
package. ``KIND_known.py`` holds those that were at hand while the probes were written, and ``KIND.py`` those of someone
who had not seen the probes. ``CASES`` of each maps names to what is planted in them.
"""
