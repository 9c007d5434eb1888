"""How much SSD, DRAM, endurance and bandwidth a workload needs, and what a hit costs against a miss.

``workload`` makes a trace of an operator's numbers, ``load`` simulates a trace and says what one session comes to,
``plan`` scales that to a day of sessions, ``prices`` puts prices to it.
"""
