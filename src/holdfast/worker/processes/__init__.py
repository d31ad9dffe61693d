"""Processes that jobs run in: started under a process guard, drained while they print, ended as a whole tree."""
