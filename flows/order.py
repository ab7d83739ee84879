"""Standing orders by a form: give one, or lift it; every plan keeps what stands."""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.states import Completed

from flows import artifacts
from flows.desk import Desk, Outcome, around, rename, run_id, told
from flows.forms import OrderForm
from gogh_core.planning import Order, give, lift, list_orders, read_state

__all__ = ["order"]

_LIST = OrderForm()


@flow(name="order", flow_run_name="order")
@told
def order(request: OrderForm = _LIST) -> Outcome:
    """Give a standing order or lift one, and list what stands.

    Args:
        request: What is ordered; as it stands, orders are only listed.

    """
    desk = Desk()
    now = desk.clock()
    done: list[str] = []
    if request.does != "list":
        state = around("state", lambda: read_state(desk.manager, desk.settings, now))
        wish = request.to_order(now)
        if isinstance(wish, Order):
            given = give(desk.store, [wish], state, now)
            done = [str(one) if new else f"ordered already: {one}" for one, new in given]
        else:
            kind, subject = wish
            who = request.who.strip() or "somebody"
            lifted = lift(desk.store, kind, subject, who=who, now=now, state=state)
            done = [f"lifted: {one}" for one in lifted]
        around("publish", desk.store.publish)
    known = list_orders(desk.store)
    standing = sum(one.stands(now) for one in known)
    if run_id():
        create_table_artifact(
            key="gogh-orders",
            table=artifacts.orders_table(known, now),
            description=f"### Orders in force or planned: {standing}",
        )
    name = " · ".join(["order", *(done or [f"{standing} in force or planned"])])
    rename(name[:200])
    return Completed(message=name)
