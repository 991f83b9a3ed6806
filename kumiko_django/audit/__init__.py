"""The record of every use of an escape hatch, and of every one that was refused (design 7).

Enters: what ``types/hatches`` is told. Leaves: ``EscapeHatchUse`` rows, one for all uses that are
alike in a window, and the signal ``escape_hatch_used``.
"""
