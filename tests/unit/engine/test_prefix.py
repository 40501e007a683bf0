"""Keys of full blocks depend on all that their content depends on, and on nothing else."""

from itertools import combinations

from engine.prefix import activated_key, child_key, root_key

BLOCK = tuple(range(16))


def test_equal_history_gives_equal_keys() -> None:
    first = child_key(child_key(root_key("sha256:a", "s"), BLOCK), BLOCK)
    assert first == child_key(child_key(root_key("sha256:a", "s"), list(BLOCK)), list(BLOCK))


def test_roots_differ_by_adapter_and_salt_and_never_run_together() -> None:
    fields = [(None, ""), ("", ""), ("a", ""), (None, "a"), ("a", "b"), ("ab", ""), ("", "ab"), (None, "+a")]
    assert all(root_key(*a) != root_key(*b) for a, b in combinations(fields, 2))


def test_keys_differ_by_parent_and_by_each_token() -> None:
    root = root_key(None, "")
    key = child_key(root, BLOCK)
    assert key != child_key(key, BLOCK)
    assert key != child_key(root, (*BLOCK[:-1], 99))
    assert key != child_key(root_key(None, "salt"), BLOCK)


def test_an_adapter_enters_a_chain_by_what_is_before_it_its_digest_and_its_place() -> None:
    root = root_key(None, "")
    keys = [
        root,
        activated_key(root, "sha256:a", 0),
        activated_key(root, "sha256:a", 1),
        activated_key(root, "sha256:b", 0),
        activated_key(root_key(None, "salt"), "sha256:a", 0),
        root_key("sha256:a", ""),
    ]
    assert len(set(keys)) == len(keys)
