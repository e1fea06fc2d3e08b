"""Bad files: sound ones of every kind that is read here, what may be wrong with them, and a process to try that in.

::

    a Reader (how to write a sound file, how to read it) ──▶ trials (damage by chance, attacks by hand)
        ──▶ bounded (a process with little memory and time, in a folder that is watched) ──▶ read, refused or a fault
"""
