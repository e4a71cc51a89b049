import type { ReactNode } from "react";
import { useKeyGroups } from "../lib/keys.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { Kbd } from "../parts/Kbd.tsx";
import styles from "./KeyMap.module.css";

/** All shortcuts that work where one is. */
export function KeyMap({ onClose }: { onClose: () => void }): ReactNode {
  const groups = useKeyGroups();
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose} wide>
      <div className={styles.groups} tabIndex={0} role="group" aria-label="Shortcuts">
        {groups.toReversed().map((group) => (
          <section key={group.name}>
            <h3 className={styles.name}>{group.name}</h3>
            <dl className={styles.keys}>
              {group.bindings.map((one) => (
                <div key={one.keys}>
                  <dt>
                    <Kbd keys={one.keys} />
                  </dt>
                  <dd>{one.text}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}
