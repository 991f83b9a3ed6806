"""The weaknesses of the original, one file each, and the test that each of them breaks.

The package was written after an original whose severe weaknesses have numbers (P01, P12, ...). A
test that proves one of them mended could pass for another reason, or stop proving anything when the
code around it changes. So here stands for each of them how to bring it back: what the original did,
in our own words, as texts to replace in the package, and the test that must fail then, with the
line at which it must. ``make regressions`` does that, each in a copy of its own.

``regression``  what such a file says; finding and applying it
``copies``      a copy of the checkout with a weakness in it, and pytest running there
``report``      what pytest has said, and whether that is what was expected
``pNN``         one weakness
"""

from __future__ import annotations
