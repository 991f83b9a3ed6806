"""Personal data: which fields hold it, and that nobody's work does not write it (design 7).

Enters: ``class Personal`` of models; every write of the ORM; the write origin of the moment.
Leaves: nothing, or ``AccessDenied``.
"""
