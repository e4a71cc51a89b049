import { Terminal } from "lucide-react";
import { type ReactNode, useState } from "react";
import { useMe } from "../api/session.ts";
import { type ActionForm, type Forms, formsOf } from "../lib/forms.ts";
import { IconButton } from "./Button.tsx";
import styles from "./CopyAs.module.css";
import { CopyLine } from "./CopyLine.tsx";
import { Popover } from "./Popover.tsx";

const KINDS = ["CLI", "curl", "Python"] as const;

/** What a script does to get the same: a command, curl, or Python. */
export function CopyAs({ actions }: { actions: Record<string, ActionForm> }): ReactNode {
  return (
    <Popover
      label="Use from a script"
      trigger={(props) => <IconButton label="Show as CLI, curl or Python" icon={<Terminal size={16} />} {...props} />}
    >
      {() => (
        <div className={styles.popover}>
          <Shown actions={actions} />
        </div>
      )}
    </Popover>
  );
}

/** The same, without a button of its own: for dialogs. */
export function Shown({ actions }: { actions: Record<string, ActionForm> }): ReactNode {
  const [kind, setKind] = useState<keyof Forms>("CLI");
  const authenticated = useMe()?.authenticated ?? false;
  const all = Object.entries(actions).map(([name, action]) => ({
    name,
    forms: formsOf(action, window.location.origin, authenticated),
  }));
  return (
    <div className={styles.box}>
      <div className={styles.kinds} role="group" aria-label="Language">
        {KINDS.map((one) => (
          <button key={one} type="button" aria-pressed={one === kind} onClick={() => setKind(one)}>
            {one}
          </button>
        ))}
      </div>
      {all.map(({ name, forms }) => (
        <div key={name} className={styles.form}>
          {all.length > 1 && <span className="quiet small">{name}</span>}
          {forms[kind] ? (
            <CopyLine text={forms[kind]} wrap />
          ) : (
            <span className="quiet small">There is no {kind} form.</span>
          )}
        </div>
      ))}
    </div>
  );
}
