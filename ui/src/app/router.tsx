import { createRootRoute, createRoute, createRouter } from "@tanstack/react-router";
import { type ComponentType, lazy } from "react";
import { PERIODS } from "../lib/time.ts";
import { flagOf, numberOf, oneOf, parseSearch, someOf, stringifySearch, textOf, understood } from "../lib/url.ts";
import { preloadGraph } from "../parts/LazyGraph.tsx";
// The views that are opened most come with the first load: one file, and no second wait.
import { Home } from "../views/home/Home.tsx";
import { ORDERS } from "../views/playbooks/stats.ts";
import { DIALECTS, TAB_NAMES } from "../views/run/context.ts";
import { Run } from "../views/run/Run.tsx";
import { ENTITIES, EVENT_SPANS } from "../views/runs/eventSearch.ts";
import { RUN_STATES, SPANS } from "../views/runs/filters.ts";
import { Runs } from "../views/runs/Runs.tsx";
import { Frame } from "./Frame.tsx";
import { NotFound } from "./NotFound.tsx";
import { RouteTrouble } from "./RouteTrouble.tsx";

/** A view whose code is loaded when it is opened, or is about to be. (The router's own way reloads the page when that fails.) */
function view<K extends string>(load: () => Promise<Record<K, ComponentType>>, name: K) {
  const component = lazy(async () => ({ default: (await load())[name] }));
  // What fails now is tried again when the view is opened.
  const preload = async (): Promise<void> => void (await load().catch(() => undefined));
  return Object.assign(component, { preload });
}

const root = createRootRoute({ component: Frame, notFoundComponent: NotFound });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  validateSearch: (raw: Record<string, unknown>) =>
    understood({ span: oneOf(raw.span, ["24h", "7d", "30d"] as const) }),
  component: Home,
});

const runs = createRoute({
  getParentRoute: () => root,
  path: "/runs",
  validateSearch: (raw: Record<string, unknown>) =>
    understood({
      q: textOf(raw.q, 200),
      state: someOf(raw.state, RUN_STATES),
      path: textOf(raw.path),
      span: oneOf(raw.span, SPANS),
      since: textOf(raw.since, 64),
      until: textOf(raw.until, 64),
      called: flagOf(raw.called),
      parent: textOf(raw.parent, 32),
      origin: textOf(raw.origin, 32),
      focus: flagOf(raw.focus),
    }),
  component: Runs,
});

const compare = createRoute({
  getParentRoute: () => root,
  path: "/runs/compare",
  validateSearch: (raw: Record<string, unknown>) => understood({ a: textOf(raw.a, 32), b: textOf(raw.b, 32) }),
  component: view(() => import("../views/compare/Compare.tsx"), "Compare"),
});

const searchEvents = createRoute({
  getParentRoute: () => root,
  path: "/runs/events",
  validateSearch: (raw: Record<string, unknown>) =>
    understood({
      type: textOf(raw.type, 200),
      entity: oneOf(raw.entity, ENTITIES),
      span: oneOf(raw.span, EVENT_SPANS),
      where: textOf(raw.where, 1000),
    }),
  component: view(() => import("../views/runs/SearchEvents.tsx"), "SearchEvents"),
});

const run = createRoute({
  getParentRoute: () => root,
  path: "/runs/$id",
  validateSearch: (raw: Record<string, unknown>) =>
    understood({
      /** the event that is selected, and the moment that is shown */
      seq: numberOf(raw.seq, 1),
      /** a first mark: what changed from there? */
      from: numberOf(raw.from, 1),
      step: textOf(raw.step, 500),
      run: numberOf(raw.run, 1),
      item: textOf(raw.item, 100),
      tab: oneOf(raw.tab, TAB_NAMES),
      line: numberOf(raw.line, 1),
      /** the events that are listed */
      range: textOf(raw.range, 30),
      find: textOf(raw.find, 100),
      show: oneOf(raw.show, ["compact"] as const),
      dialect: oneOf(raw.dialect, DIALECTS),
      /** the value whose origin is shown */
      value: textOf(raw.value, 1024),
    }),
  beforeLoad: preloadGraph,
  component: Run,
});

const playbooks = createRoute({
  getParentRoute: () => root,
  path: "/playbooks",
  validateSearch: (raw: Record<string, unknown>) =>
    understood({ q: textOf(raw.q, 200), archived: flagOf(raw.archived) }),
  component: view(() => import("../views/playbooks/Playbooks.tsx"), "Playbooks"),
});

const playbook = createRoute({
  getParentRoute: () => root,
  path: "/playbook/$",
  validateSearch: (raw: Record<string, unknown>) =>
    understood({
      version: numberOf(raw.version, 1),
      /** shows what changed since this version */
      since: numberOf(raw.since, 1),
      step: textOf(raw.step, 500),
      tab: oneOf(raw.tab, ["edit", "versions", "stats", "simulate", "schedules"] as const),
      run: flagOf(raw.run),
      /** of its statistics: how far back they go, and which steps come first */
      period: oneOf(raw.period, PERIODS),
      order: oneOf(raw.order, ORDERS),
    }),
  beforeLoad: preloadGraph,
  component: view(() => import("../views/playbooks/Playbook.tsx"), "Playbook"),
});

const newPlaybook = createRoute({
  getParentRoute: () => root,
  path: "/new-playbook",
  component: view(() => import("../views/playbooks/Playbook.tsx"), "NewPlaybook"),
});

const approvals = createRoute({
  getParentRoute: () => root,
  path: "/approvals",
  component: view(() => import("../views/approvals/Approvals.tsx"), "Approvals"),
});

const schedules = createRoute({
  getParentRoute: () => root,
  path: "/schedules",
  component: view(() => import("../views/schedules/Schedules.tsx"), "SchedulesPage"),
});

const work = createRoute({
  getParentRoute: () => root,
  path: "/work",
  component: view(() => import("../views/workers/Work.tsx"), "Work"),
});

const settings = createRoute({
  getParentRoute: () => root,
  path: "/settings",
  validateSearch: (raw: Record<string, unknown>) =>
    understood({ tab: oneOf(raw.tab, ["doctor", "credentials", "keys", "audit", "settings"] as const) }),
  component: view(() => import("../views/settings/Settings.tsx"), "Settings"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    home,
    runs,
    compare,
    searchEvents,
    run,
    playbooks,
    playbook,
    newPlaybook,
    approvals,
    schedules,
    work,
    settings,
  ]),
  parseSearch,
  stringifySearch,
  defaultPreload: "intent",
  defaultErrorComponent: RouteTrouble,
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
