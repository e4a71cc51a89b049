import { CircleUser, LogOut } from "lucide-react";
import type { ReactNode } from "react";
import { messageOf } from "../api/problem.ts";
import { signOut, useMe } from "../api/session.ts";
import { Button } from "../parts/Button.tsx";
import { Popover } from "../parts/Popover.tsx";
import { Time } from "../parts/Time.tsx";
import styles from "./Account.module.css";
import { setTheme, type Theme, useTheme } from "./theme.ts";
import { toast } from "./toasts.ts";

const THEMES: [Theme, string][] = [
  ["system", "System"],
  ["light", "Light"],
  ["dark", "Dark"],
];

/** Who uses the page, what they may do, and the way out. */
export function Account(): ReactNode {
  const me = useMe();
  const theme = useTheme();
  if (!me) return null;
  const name = me.authenticated ? `${me.name}@${me.tenant}` : "local";
  return (
    <Popover
      label="Account"
      trigger={(props) => (
        <Button kind="quiet" icon={<CircleUser size={16} />} aria-label={`Account: ${name}`} {...props}>
          <span className={`${styles.name} cut`}>{name}</span>
        </Button>
      )}
    >
      {(close) => (
        <div className={styles.box}>
          <dl className={styles.facts}>
            <dt>User</dt>
            <dd>{me.authenticated ? me.name : "anybody on this machine"}</dd>
            <dt>Tenant</dt>
            <dd>{me.tenant}</dd>
            <dt>Roles</dt>
            <dd>{me.authenticated ? me.roles.join(", ") || "none" : "all"}</dd>
            {me.expires_at && (
              <>
                <dt>Session expires</dt>
                <dd>
                  <Time at={me.expires_at} />
                </dd>
              </>
            )}
          </dl>
          <div className={styles.themes} role="group" aria-label="Theme">
            {THEMES.map(([value, text]) => (
              <button key={value} type="button" aria-pressed={theme === value} onClick={() => setTheme(value)}>
                {text}
              </button>
            ))}
          </div>
          {me.authenticated && (
            <Button
              icon={<LogOut size={14} />}
              onClick={() => {
                close();
                signOut().catch((error: unknown) =>
                  toast({ kind: "failed", text: "You are still signed in", detail: messageOf(error) }),
                );
              }}
            >
              Sign out
            </Button>
          )}
        </div>
      )}
    </Popover>
  );
}
