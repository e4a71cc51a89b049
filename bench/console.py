"""The console in a real browser: ./x bench console [--repeat N] [--quick] [--markdown] [--json FILE]

How soon pages show something, what they receive, how many frames a second they draw, and what a viewer costs the server. It runs
in the environment of the tests, which have a browser. Exit code 1 when a page shows something wrong; never because of a speed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page

from bench import report
from bench.harness import ROOT, Findings, Goal, Line, Wrong, spread
from bench.machine import machine
from tests.browser import chromium, stage

#: Until these are in the page, nobody can tell what became of a run: cause, graph and events.
RUN_IS_SHOWN = """() => document.querySelector('[data-banner=failed]') !== null
  && document.querySelector('.react-flow__node') !== null
  && document.querySelector('[role=table][aria-label=Events] [role=cell]') !== null"""
LIST_IS_SHOWN = "() => document.querySelector('[role=table][aria-label=Runs] [role=cell]') !== null"
#: Notes the moment at which something is first in the page, as the page itself sees it.
WATCH = """(shown) => {
  window.shownAt = 0;
  const look = () => { if (!window.shownAt && shown()) window.shownAt = performance.now(); };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
}"""
#: Moves the slider once a frame, as a hand does, for so many milliseconds; frames a second.
SCRUB = """async (ms) => {
  const slider = document.querySelector('input[type=range]');
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  const most = Number(slider.max);
  const begin = performance.now();
  let frames = 0;
  while (performance.now() - begin < ms) {
    const share = (performance.now() - begin) / ms;
    set.call(slider, String(1 + Math.floor((most - 1) * Math.abs(Math.sin(3 * Math.PI * share)))));
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise(requestAnimationFrame);
    frames += 1;
  }
  return (1000 * frames) / (performance.now() - begin);
}"""
FRAMES = """async (ms) => {
  const begin = performance.now();
  let frames = 0;
  while (performance.now() - begin < ms) { await new Promise(requestAnimationFrame); frames += 1; }
  return (1000 * frames) / (performance.now() - begin);
}"""
#: Steps in a cycle, each of them a decision and a commit.
CYCLE = """\
metadata: {{name: cycle, path: bench/cycle}}
workflow:
  - step: count
    tool:
      name: add
      kind: {kind}
      {task}
      spec:
        policy:
          rules:
            - else: {{then: {{do: continue, set_ctx: {{n: "{{{{ (ctx.n | default(0)) + 1 }}}}"}}}}}}
    next: {{arcs: [{{step: count, when: "{{{{ ctx.n < {steps} }}}}"}}]}}
"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./x bench console", description="Measure the console in a real browser.")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="rounds that the medians are made of (3)")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does it work at all?")
    parser.add_argument("--markdown", action="store_true", help="print tables for docs/performance.md")
    parser.add_argument("--json", metavar="FILE", help="write everything there, too")
    options = parser.parse_args(argv)
    subprocess.run([os.path.join(ROOT, "x"), "ui", "build"], check=True)
    about = machine("")
    findings: list[Findings] = []
    problems: list[str] = []
    rounds = 1 if options.quick else options.repeat
    with tempfile.TemporaryDirectory() as folder, chromium.running() as browser:
        for measure in (large_run, many_runs, live_run):
            try:
                findings.append(measure(browser, Path(folder) / measure.__name__, rounds, options.quick))
            except Wrong as wrong:
                problems.append(f"{measure.__name__}: {wrong}")
    shown = report.markdown if options.markdown else report.text
    print(shown(findings, about, problems))
    if options.json:
        Path(options.json).write_text(report.as_json(findings, about, problems), encoding="utf-8")
    return 1 if problems else 0


def large_run(browser: Browser, home: Path, rounds: int, quick: bool) -> Findings:
    items = 500 if quick else stage.LARGE_ITEMS
    with stage.server(home) as server:
        execution_id = server.run(stage.large(items))
        with server.client() as client:
            events: int = client.get(f"/api/executions/{execution_id}/head").json()["head"]
        found = Findings("C1", f"a run of {events:,} events and {items:,} items, at 1280 × 800")
        shown, received, frames = [], [], []
        for _ in range(rounds):
            with opened(browser) as page:
                received_now = chromium.received_by(page)
                shown.append(shown_after(page, f"{server.url}/runs/{execution_id}", RUN_IS_SHOWN))
                page.get_by_text(f"event {events:,} of {events:,}").wait_for()
                received.append(received_now() / 1000)
                frames.append(float(page.evaluate(SCRUB, 500 if quick else 4000)))
    found.ratios += [
        Line("cause, graph and events are shown", spread(shown), "ms", Goal("<=", 1000), digits=0),
        Line("received before scrolling", spread(received), "kB", Goal("<=", 1000), digits=0),
        Line("frames while the slider is dragged", spread(frames), "1/s", Goal(">=", 30), digits=0),
    ]
    return found


def many_runs(browser: Browser, home: Path, rounds: int, quick: bool) -> Findings:
    count = 2_000 if quick else 100_000
    found = Findings("C2", f"the list of {count:,} runs")
    with stage.crowded(home, count) as server:
        shown = []
        for _ in range(rounds):
            with opened(browser) as page:
                shown.append(shown_after(page, f"{server.url}/runs", LIST_IS_SHOWN))
    found.ratios.append(Line("first page is shown", spread(shown), "ms", Goal("<=", 500), digits=0))
    return found


def live_run(browser: Browser, home: Path, rounds: int, quick: bool) -> Findings:
    """A run as fast as it goes, for frames; and one of about ten steps a second, for what a viewer costs."""
    found = Findings("C3", "a run that is followed live")
    seconds = 1.0 if quick else 6.0
    rates, frames, costs = [], [], []
    with stage.server(home) as server:
        for _ in range(rounds):
            fast = server.run(CYCLE.format(kind="noop", task="data: 1", steps=100_000), until="step.done")
            with opened(browser) as page:
                page.goto(f"{server.url}/runs/{fast}")
                page.get_by_text("live", exact=True).wait_for()
                page.wait_for_timeout(1000)
                before = server.steps(fast)
                frames.append(float(page.evaluate(FRAMES, 1000 * seconds)))
                rates.append((server.steps(fast) - before) / seconds)
            server.signal(fast, "CANCEL", reason="measured")
            slow = server.run(
                CYCLE.format(kind="python", task='code: "import time; time.sleep(0.1)"', steps=100_000),
                until="step.done",
            )
            alone = server.cpu_share(seconds)
            with opened(browser) as page:
                page.goto(f"{server.url}/runs/{slow}")
                page.get_by_text("live", exact=True).wait_for()
                page.wait_for_timeout(1000)
                costs.append(100 * (server.cpu_share(seconds) - alone))
            server.signal(slow, "CANCEL", reason="measured")
    found.ratios += [
        Line("frames while steps are done", spread(frames), "1/s", Goal(">=", 30), digits=0),
        Line("a viewer's share of a core, 10 steps/s", spread(costs), "%", Goal("<=", 3), digits=1),
    ]
    found.figures.append(Line("steps of the fast run", spread(rates), "1/s", Goal(">=", 300), digits=0))
    return found


@contextmanager
def opened(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, bypass_csp=True)
    try:
        yield context.new_page()
    finally:
        context.close()


def shown_after(page: Page, url: str, shown: str) -> float:
    """Milliseconds from the start of the navigation until something is in the page."""
    page.add_init_script(f"({WATCH})({shown})")
    page.goto(url)
    page.wait_for_function("() => window.shownAt > 0", timeout=60_000)
    return float(page.evaluate("() => window.shownAt"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
