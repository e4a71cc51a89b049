"""The playbooks that `arclog init` starts from, each with its tests."""

from __future__ import annotations

from typing import NamedTuple


class Starter(NamedTuple):
    """A playbook to begin with. `NAME` in its texts is replaced by the requested name."""

    summary: str
    playbook: str
    tests: str


_HELLO = Starter(
    "one python task and a branch",
    """\
# Try:  arclog run NAME.yaml --set name=Ada
apiVersion: noetl.io/v10
kind: Playbook
metadata:
  name: NAME

workload:
  name: world

workflow:
  - step: start
    tool:
      kind: python
      args: {name: "{{ workload.name }}"}
      code: |
        def main(name):
            return {"greeting": f"hello, {name}", "long": len(name) > 5}
    next:
      arcs:
        - {step: shout, when: "{{ start.long }}"}
        - {step: end}

  - step: shout
    tool: {kind: noop, data: {greeting: "{{ start.greeting | upper }}"}}

  - step: end
    tool: {kind: noop, data: {greeting: "{{ start.greeting }}"}}
""",
    """\
# Run with:  arclog test
defaults:
  python: run
tests:
  - name: a short name is greeted quietly
    workload: {name: Ada}
    expect:
      path: [start, end]
      result: {greeting: "hello, Ada"}

  - name: a long name is shouted
    workload: {name: Leonardo}
    expect:
      path: [start, shout]
      result: {greeting: "HELLO, LEONARDO"}
""",
)

_ETL = Starter(
    "extract from an API, transform in Python, load into SQLite",
    """\
# Try:  arclog run NAME.yaml --set url=https://example.org/orders.json
apiVersion: noetl.io/v10
kind: Playbook
metadata:
  name: NAME

workload:
  url: https://example.org/orders.json
  database: orders.db

executor:
  spec:
    result: {loaded: "{{ load.data[0].n }}"}

workflow:
  - step: extract
    tool:
      kind: http
      url: "{{ workload.url }}"
      spec:
        policy:
          rules:
            - when: "{{ outcome.status == 'error' and outcome.error.retryable }}"
              then: {do: retry, attempts: 5, delay: 2, backoff: exponential}
            - when: "{{ outcome.status == 'error' }}"
              then: {do: fail}
            - else: {then: {do: continue}}
    next: {arcs: [{step: transform}]}

  - step: transform
    tool:
      kind: python
      args: {orders: "{{ extract.data }}"}
      code: |
        def main(orders):
            return [{"id": order["id"], "total": round(order["price"] * order["count"], 2)} for order in orders]
    next: {arcs: [{step: load}]}

  - step: load
    tool:
      - name: create
        kind: sqlite
        database: "{{ workload.database }}"
        command: CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, total REAL)
      - name: insert
        kind: sqlite
        database: "{{ workload.database }}"
        command: |
          INSERT OR REPLACE INTO orders
          SELECT value ->> 'id', value ->> 'total' FROM json_each({{ transform.data }})
      - name: count
        kind: sqlite
        database: "{{ workload.database }}"
        command: SELECT count(*) AS n FROM orders
""",
    """\
defaults:
  python: run
  mocks:
    - {step: load, task: create, ok: []}
    - {step: load, task: insert, ok: []}
    - {step: load, task: count, ok: [{n: 2}]}
tests:
  - name: orders are priced and loaded
    mocks:
      - {step: extract, ok: [{id: 1, price: 2.5, count: 2}, {id: 2, price: 1, count: 3}]}
    expect:
      path: [extract, transform, load]
      that: "{{ transform.data == [{'id': 1, 'total': 5.0}, {'id': 2, 'total': 3}] }}"
      result: {loaded: 2}

  - name: a slow API is asked again
    mocks:
      - {step: extract, attempt: [1, 2], error: timeout}
      - {step: extract, ok: []}
    expect:
      calls: {extract: 3}
      duration_s: 6

  - name: a missing file fails the run
    mocks:
      - {step: extract, error: not_found}
    expect:
      error: {kind: not_found, step: extract}
      not_run: [load]
""",
)

_API = Starter(
    "page through a web API and collect its items",
    """\
apiVersion: noetl.io/v10
kind: Playbook
metadata:
  name: NAME

keychain:
  - {name: api, kind: bearer}

workload:
  url: https://example.org/items

executor:
  spec:
    ctx:
      items: {reducer: append, initial: []}
    result: "{{ ctx.items }}"

workflow:
  - step: start
    tool:
      - name: page
        kind: http
        url: "{{ workload.url }}"
        auth: api
        params: {page: "{{ iter.next | default(1) }}"}
        spec:
          policy:
            rules:
              - when: "{{ outcome.status == 'error' and outcome.error.kind in ['rate_limit', 'server_error', 'timeout'] }}"
                then: {do: retry, attempts: 5, delay: 1, backoff: exponential}
              - when: "{{ outcome.status == 'error' }}"
                then: {do: fail}
              - else:
                  then:
                    do: continue
                    set_ctx: {items: "{{ outcome.data.name }}"}
                    set_iter: {next: "{{ (iter.next | default(1)) + 1 }}"}
      - name: more
        kind: noop
        data: "{{ page.data.more }}"
        spec:
          policy:
            rules:
              - when: "{{ page.data.more }}"
                then: {do: jump, to: page}
              - else: {then: {do: break}}
""",
    """\
tests:
  - name: every page is fetched
    mocks:
      - {step: start, task: page, with: {params: {page: 1}}, ok: {name: a, more: true}}
      - {step: start, task: page, with: {params: {page: 2}}, ok: {name: b, more: false}}
    expect:
      result: [a, b]
      calls: {start.page: 2}

  - name: a busy server is asked again
    mocks:
      - {step: start, task: page, times: 1, error: rate_limit}
      - {step: start, task: page, ok: {name: a, more: false}}
    expect:
      result: [a]
      duration_s: {min: 1}

  - name: a refused key fails the run
    mocks:
      - {step: start, task: page, error: auth}
    expect:
      error: {kind: auth}
""",
)

_APPROVAL = Starter(
    "wait for a person before something is done",
    """\
# Try:  arclog run NAME.yaml; then in another terminal: arclog approve last
apiVersion: noetl.io/v10
kind: Playbook
metadata:
  name: NAME

workload:
  amount: 100

workflow:
  - step: start
    tool: {kind: noop}
    next:
      arcs:
        - {step: ask, when: "{{ workload.amount > 50 }}"}
        - {step: pay}

  - step: ask
    tool:
      kind: approval
      prompt: "Pay {{ workload.amount }}?"
      timeout_s: 86400
    next:
      arcs:
        - {step: refused, when: "{{ event.name == 'step.failed' }}"}
        - {step: pay}

  - step: pay
    tool: {kind: noop, data: {paid: "{{ workload.amount }}"}}

  - step: refused
    tool: {kind: noop, data: {paid: 0}}
""",
    """\
tests:
  - name: a small amount needs nobody
    workload: {amount: 10}
    expect:
      path: [start, pay]
      duration_s: 0

  - name: a large amount is paid once it is approved
    signals: [{signal: APPROVE, step: ask, at: 3600}]
    expect:
      path: [start, ask, pay]
      result: {paid: 100}
      duration_s: 3600

  - name: it is not paid when it is rejected
    signals: [{signal: REJECT, step: ask, reason: too much}]
    expect:
      path: [start, ask, refused]
      result: {paid: 0}

  - name: it is not paid when nobody answers for a day
    expect:
      path: [start, ask, refused]
      duration_s: 86400
""",
)

_SAGA = Starter(
    "undo completed steps when a later step fails",
    """\
apiVersion: noetl.io/v10
kind: Playbook
metadata:
  name: NAME

workload:
  api: https://example.org

workflow:
  - step: book_flight
    tool: {kind: http, method: POST, url: "{{ workload.api }}/flights"}
    next: {arcs: [{step: book_hotel}]}

  - step: book_hotel
    tool: {kind: http, method: POST, url: "{{ workload.api }}/hotels"}
    next:
      arcs:
        - {step: cancel_flight, when: "{{ event.name == 'step.failed' }}"}
        - {step: booked}

  - step: cancel_flight
    tool: {kind: http, method: DELETE, url: "{{ workload.api }}/flights/{{ book_flight.id }}"}
    next: {arcs: [{step: not_booked}]}

  - step: booked
    tool: {kind: noop, data: {flight: "{{ book_flight.id }}", hotel: "{{ book_hotel.id }}"}}

  - step: not_booked
    tool: {kind: noop, data: {flight: null, hotel: null}}
""",
    """\
defaults:
  mocks:
    - {step: book_flight, ok: {id: F-17}}
tests:
  - name: both are booked
    mocks:
      - {step: book_hotel, ok: {id: H-4}}
    expect:
      result: {flight: F-17, hotel: H-4}
      not_run: [cancel_flight]

  - name: the flight is cancelled when there is no hotel
    mocks:
      - {step: book_hotel, error: client_error}
      - {step: cancel_flight, ok: {}}
    expect:
      state: completed
      path: [book_flight, book_hotel, cancel_flight, not_booked]
      calls: {cancel_flight: [{method: DELETE, url: "https://example.org/flights/F-17"}]}

  - name: nothing is undone when the flight fails
    mocks:
      - {step: book_flight, error: {kind: server_error, retryable: false}}
    expect:
      error: {kind: server_error}
      path: [book_flight]
""",
)

_BATCH = Starter(
    "work through many items side by side; single failures are counted",
    """\
apiVersion: noetl.io/v10
kind: Playbook
metadata:
  name: NAME

workload:
  api: https://example.org
  ids: [1, 2, 3]

executor:
  spec:
    ctx:
      done: {reducer: count, initial: 0}
    result: {done: "{{ ctx.done }}", of: "{{ workload.ids | length }}"}

workflow:
  - step: start
    spec: {policy: {failure: {mode: best_effort}}}
    loop:
      in: "{{ workload.ids }}"
      iterator: id
      spec: {mode: parallel, max_in_flight: 5}
    tool:
      kind: http
      method: POST
      url: "{{ workload.api }}/items/{{ iter.id }}"
      spec:
        policy:
          rules:
            - when: "{{ outcome.status == 'error' and outcome.error.retryable }}"
              then: {do: retry, attempts: 3, delay: 5}
            - when: "{{ outcome.status == 'error' }}"
              then: {do: fail}
            - else: {then: {do: continue, set_ctx: {done: 1}}}
""",
    """\
tests:
  - name: every item is done
    mocks:
      - {step: start, ok: {}}
    expect:
      result: {done: 3, of: 3}
      calls: {start: 3}

  - name: one that fails is left out
    mocks:
      - {step: start, item: 1, error: client_error}
      - {step: start, ok: {}}
    expect:
      result: {done: 2, of: 3}

  - name: a busy server is asked again
    mocks:
      - {step: start, item: 2, attempt: 1, error: server_error}
      - {step: start, ok: {}}
    expect:
      result: {done: 3, of: 3}
      calls: {start: 4}
""",
)

STARTERS: dict[str, Starter] = {
    "hello": _HELLO,
    "etl": _ETL,
    "api": _API,
    "approval": _APPROVAL,
    "saga": _SAGA,
    "batch": _BATCH,
}
