from serve.open_requests import OpenRequests


def test_a_request_is_open_until_its_last_choice_has_ended() -> None:
    requests: OpenRequests[str] = OpenRequests()
    requests.open("a", 2, "thing")
    assert requests.end_choice("a") is None
    assert requests.get("a") == "thing"
    assert requests.end_choice("a") == "thing"
    assert requests.get("a") is None
    assert requests.end_choice("a") is None


def test_a_request_may_be_closed_whatever_its_choices_do() -> None:
    requests: OpenRequests[str] = OpenRequests()
    requests.open("a", 2, "thing")
    assert requests.close("a") == "thing"
    assert requests.close("a") is None


def test_the_requests_of_a_thing_are_told_by_identity() -> None:
    one, other = ["same"], ["same"]
    requests: OpenRequests[list[str]] = OpenRequests()
    for name, thing in (("a", one), ("b", other), ("c", one)):
        requests.open(name, 1, thing)
    assert requests.of(one) == ["a", "c"]
