/** The views that the rail, the palette and the keys lead to. */
import {
  CalendarClock,
  CircleCheckBig,
  House,
  ListTree,
  type LucideIcon,
  Server,
  Settings,
  Workflow,
} from "lucide-react";

export interface Place {
  to: string;
  text: string;
  icon: LucideIcon;
  /** pressed after `g` */
  key: string;
}

export const PLACES: Place[] = [
  { to: "/", text: "Home", icon: House, key: "h" },
  { to: "/runs", text: "Runs", icon: ListTree, key: "r" },
  { to: "/playbooks", text: "Playbooks", icon: Workflow, key: "p" },
  { to: "/approvals", text: "Approvals", icon: CircleCheckBig, key: "a" },
  { to: "/schedules", text: "Schedules", icon: CalendarClock, key: "s" },
  { to: "/work", text: "Work", icon: Server, key: "w" },
  { to: "/settings", text: "Settings", icon: Settings, key: "e" },
];
