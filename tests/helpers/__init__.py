"""What tests are written with.

``services``   the Valkey and the database of the whole test run
``valkey``     a Valkey of one's own: frozen, stopped, started again, with a password
``database``   connections counted by the server itself; a database that goes away
``processes``  real ``runjobs`` processes, management commands and scripts
``queues``     what lies in a lane's queue, read without the code under test
``waiting``    ``wait_until`` and ``await_until`` instead of sleeping
"""

from __future__ import annotations
