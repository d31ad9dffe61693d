"""Processes that jobs run in: started under a nanny, drained while they print, ended as a whole tree."""
