"""The soak: every fault test of the project at its full count. ``python -m tests.load.soak --help``.

A trial is a module here with a ``TRIAL``; it joins the soak by its line in :mod:`tests.load.soak.trials`. ``make test``
calls the same ``run`` with a short count.
"""
