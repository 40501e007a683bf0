from serve.parsing.parts import Call, CallArguments, CallStart, Content, Reasoning, Reply, call_id
from serve.parsing.plain import PlainParser


def test_parts_are_put_together_by_kind_and_call() -> None:
    reply = Reply()
    reply.add([Reasoning("a"), Content("b"), CallStart(0, "one", "f"), CallArguments(0, '{"x"')])
    reply.add([CallArguments(0, ": 1}"), CallStart(1, "two", "g"), Content("c")])
    assert reply == Reply("bc", "a", [Call("one", "f", '{"x": 1}'), Call("two", "g")])


def test_all_text_of_a_plain_answer_is_content() -> None:
    parser = PlainParser()
    assert [*parser.push("<tool_call>"), *parser.push(""), *parser.finish()] == [Content("<tool_call>")]


def test_ids_of_calls_differ() -> None:
    assert len({call_id() for _ in range(100)}) == 100
