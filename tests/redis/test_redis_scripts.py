"""Scripts: the server takes every one that can be put together, however many parts it nests."""

from itertools import chain, combinations

from holdfast.store.redis.scripts import KINDS, write_script


def test_every_mixture_of_operations_is_a_script_that_the_server_takes(server):
    mixtures = chain.from_iterable(combinations(KINDS, size) for size in range(1, len(KINDS) + 1))
    made = [write_script(*kinds) for kinds in mixtures]
    assert len(made) == 31
    for script in made:
        assert server.call("SCRIPT", "LOAD", script.text) == script.sha
