import { Link, Outlet, useRouter, useRouterState } from "@tanstack/react-router";
import { Moon, Search, Sun } from "lucide-react";
import { type ReactNode, useEffect, useState } from "react";
import { reachable } from "../api/client.ts";
import { listenForKeys, useKeys } from "../lib/keys.ts";
import { useStore } from "../lib/store.ts";
import { IconButton } from "../parts/Button.tsx";
import { Kbd } from "../parts/Kbd.tsx";
import { Logo } from "../parts/Logo.tsx";
import { toggleExactTimes } from "../parts/Time.tsx";
import { Boundary } from "../parts/Trouble.tsx";
import { Account } from "./Account.tsx";
import { copyLink } from "./copyLink.ts";
import { useTrail } from "./crumbs.ts";
import styles from "./Frame.module.css";
import { KeyMap } from "./KeyMap.tsx";
import { Palette } from "./Palette.tsx";
import { PLACES } from "./places.ts";
import { Toasts } from "./Toasts.tsx";
import { isDark, setTheme, useTheme } from "./theme.ts";

/** What stands around every view. */
export function Frame(): ReactNode {
  const [open, setOpen] = useState<"palette" | "keys" | null>(null);
  const pathname = useRouterState({ select: (state) => state.location.pathname });
  const router = useRouter();
  useEffect(listenForKeys, []);
  useKeys("Everywhere", [
    { keys: "mod+k", text: "command palette", run: () => setOpen(open === "palette" ? null : "palette") },
    { keys: "?", text: "all shortcuts", run: () => setOpen("keys") },
    { keys: "/", text: "search runs", run: () => void router.navigate({ to: "/runs", search: { focus: true } }) },
    { keys: "c", text: "copy link to this view", run: () => void copyLink() },
    { keys: "t", text: "switch between exact and relative times", run: toggleExactTimes },
    { keys: "Escape", text: "back", run: () => router.history.back() },
    ...PLACES.map((place) => ({
      keys: `g ${place.key}`,
      text: `go to ${place.text}`,
      run: () => void router.navigate({ to: place.to }),
    })),
  ]);
  return (
    <div className={styles.frame}>
      <a className={styles.skip} href="#content">
        Skip to content
      </a>
      <Rail />
      <div className={styles.main}>
        <Bar onPalette={() => setOpen("palette")} />
        <main id="content" className={styles.content} tabIndex={-1}>
          <Boundary resetKey={pathname}>
            <Outlet />
          </Boundary>
        </main>
      </div>
      {open === "palette" && <Palette onClose={() => setOpen(null)} onKeys={() => setOpen("keys")} />}
      {open === "keys" && <KeyMap onClose={() => setOpen(null)} />}
      <Toasts />
    </div>
  );
}

function Rail(): ReactNode {
  return (
    <nav className={styles.rail} aria-label="Main">
      <Link to="/" className={styles.brand} aria-label="arclog, home">
        <Logo size={22} />
        <span>arclog</span>
      </Link>
      <ul>
        {PLACES.map(({ to, text, icon: Icon }) => (
          <li key={to}>
            <Link to={to} className={styles.place} activeOptions={{ exact: to === "/", includeSearch: false }}>
              <Icon size={16} aria-hidden="true" />
              <span>{text}</span>
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function Bar({ onPalette }: { onPalette: () => void }): ReactNode {
  const trail = useTrail();
  const there = useStore(reachable);
  useTheme(); // the icon follows it
  return (
    <header className={styles.bar}>
      <nav aria-label="Breadcrumb" className={styles.trail}>
        <ol>
          {trail.map((crumb, index) => (
            <li key={`${crumb.text} ${crumb.to ?? ""}`} className="cut">
              {crumb.to && index < trail.length - 1 ? (
                <Link to={crumb.to}>{crumb.text}</Link>
              ) : (
                <span aria-current="page">{crumb.text}</span>
              )}
            </li>
          ))}
        </ol>
      </nav>
      <div className={styles.tools}>
        <output className={styles.away}>{there ? "" : "Server unreachable, retrying"}</output>
        <button type="button" className={styles.find} onClick={onPalette}>
          <Search size={14} aria-hidden="true" />
          <span className={styles.findText}>Search</span>
          <span className={styles.findKeys}>
            <Kbd keys="mod+k" />
          </span>
        </button>
        <IconButton
          label={isDark() ? "Light theme" : "Dark theme"}
          icon={isDark() ? <Sun size={16} /> : <Moon size={16} />}
          onClick={() => setTheme(isDark() ? "light" : "dark")}
        />
        <Account />
      </div>
    </header>
  );
}
