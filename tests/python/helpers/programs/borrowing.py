"""Runs a script, and has its workers be forks of the server that has forked the script.

Usage: borrowing.py SCRIPT ARGUMENT...
"""

import os
import runpy
import sys

from borrowed import borrow_server

borrow_server()
del sys.argv[0]
script = os.path.abspath(sys.argv[0])  # as the fork server runs a script
sys.path[0] = os.path.dirname(script)
runpy.run_path(script, run_name="__main__")
