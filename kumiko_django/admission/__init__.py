"""Who may enter a queue and who may run now: places, slots, parking (design 4).

Enters: a definition and a tenant; keys with parked work.
Leaves: the rules that the broker's door applies, in one step each; parked jobs whose turn it is.
"""

from __future__ import annotations
