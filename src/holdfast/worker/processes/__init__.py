"""Processes of jobs: started under a process guard, their output read while they run, ended as a whole tree."""
