"""A service that does the work of each call once, by the token that its caller sends with it."""

from functools import partial

from flask import Request, Response

import dedup


def work(call: dedup.Run) -> str:
    """Your work. `call.id` is this call's own token: hand it on to what this service calls in turn."""
    order = call.json() if call.body else {}
    print(f"charged {order.get('amount', 0)}")
    return "charged"


def handle_call(request: Request) -> Response:
    """What callers post to, with `Idempotency-Key: run.id`. A repeated call gets the answer that the work is done."""
    return dedup.handle(request, work, delivery=partial(dedup.from_idempotency_key, service="billing"))
