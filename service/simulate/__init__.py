"""What two shelves of given sizes and lifetimes would make of a trace: the product's planner on models of the tiers.

Each block of a trace has a place in a prefix tree. ``extents`` keeps what is stored by stretches of places, ``disk``
and ``pool`` are the two tiers, ``policy`` says which snapshots are stored, and ``simulator`` plays the trace.
"""
