"""Write the master anew: ``python -m tests.golden`` (all of it), or ``python -m tests.golden KEY …`` (these entries).

An entry changes only in a commit that names it and says why.
"""

import sys

from tests.golden.cases import CASES, answer, machine
from tests.golden.master import MACHINE, read, write

keys = sys.argv[1:]
kept = {key: value for key, value in read().items() if key in CASES and key not in keys} if keys else {}
write(kept | {key: answer(key) for key in keys or CASES} | {MACHINE: machine()})
