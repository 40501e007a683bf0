"""Finding blocks by what they hold, whole or in part."""

from hypothesis import given
from hypothesis import strategies as st

from engine.prefix_index import Content, PrefixIndex


def _content(parent: bytes, tokens: tuple[int, ...]) -> Content:
    return Content(repr((parent, tokens)).encode(), parent, tokens)


def test_the_longest_common_beginning_is_found() -> None:
    index = PrefixIndex()
    for block, tokens in enumerate([(1, 2, 3), (1, 2, 9, 9), (1, 5), (7,)]):
        index.add(_content(b"p", tokens), block)
    assert index.find_longest(b"p", (1, 2, 9, 8)) == (_content(b"p", (1, 2, 9, 9)).key, 3)
    assert index.find_longest(b"p", (1, 5, 6)) == (_content(b"p", (1, 5)).key, 2)
    assert index.find_longest(b"p", (8,)) is None
    assert index.find_longest(b"q", (1,)) is None
    assert index.find_longest(b"p", ()) is None


def test_what_is_removed_is_found_no_more() -> None:
    index = PrefixIndex()
    content = _content(b"p", (1, 2))
    index.add(content, 3)
    assert (index.find(content.key), len(index)) == (3, 1)
    index.remove(content)
    assert (index.find(content.key), index.find_longest(b"p", (1, 2)), len(index)) == (None, None, 0)
    index.check_integrity()


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)


@given(held=st.sets(tokens, max_size=12), asked=tokens)
def test_no_other_block_has_more_in_common(held: set[tuple[int, ...]], asked: tuple[int, ...]) -> None:
    index = PrefixIndex()
    blocks = dict(enumerate(sorted(held)))
    for block, tokens in blocks.items():
        index.add(_content(b"p", tokens), block)
    common = {
        block: next((i for i, pair in enumerate(zip(own, asked, strict=False)) if pair[0] != pair[1]), None)
        for block, own in blocks.items()
    }
    lengths = {
        block: min(len(blocks[block]), len(asked)) if at is None else at for block, at in common.items()
    }
    found = index.find_longest(b"p", asked)
    best = max(lengths.values(), default=0)
    assert (0 if found is None else found[1]) == best
    assert found is None or lengths[index.find(found[0])] == best
