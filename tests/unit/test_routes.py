"""Every row in the table of routes fits the service method that it names."""

from __future__ import annotations

import inspect

import pytest

from holdfast.service.routes import PATH_PARAMS, ROUTES, Route

ROWS = [route for routes in ROUTES.values() for route in routes]
# HTTP returns more text per response by default than the library. The library requires a cursor.
OTHER_DEFAULTS = {("read_text", "length"), ("list_events_after", "cursor")}


@pytest.mark.parametrize("route", ROWS, ids=lambda route: route.name)
def test_a_row_names_the_arguments_of_its_method(route: Route) -> None:
    body = dict.fromkeys(route.body.model_fields) if route.body else {}
    query = {param.name: None for param in route.params if param.name not in route.path_names}
    named = {route.arguments.get(name, name): None for name in (body | query)}
    inspect.signature(route.method).bind(None, *route.path_names, **named)
    assert all(name in PATH_PARAMS or name in {param.name for param in route.params} for name in route.path_names)
    assert route.arguments.keys() <= (body | query).keys()
    assert not (body and query), "the client sends arguments in one place"


@pytest.mark.parametrize("route", ROWS, ids=lambda route: route.name)
def test_a_default_is_the_same_over_http_and_in_the_library(route: Route) -> None:
    parameters = inspect.signature(route.method).parameters
    for param in route.params:
        if param.default is not ... and (route.name, param.name) not in OTHER_DEFAULTS:
            assert param.default == parameters[route.arguments.get(param.name, param.name)].default, param.name


def test_every_name_and_every_request_occurs_once() -> None:
    assert len({route.name for route in ROWS}) == len({route.request for route in ROWS}) == len(ROWS)
    assert len({route.call for route in ROWS}) == len(ROWS)
