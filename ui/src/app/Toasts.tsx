import { X } from "lucide-react";
import type { ReactNode } from "react";
import { Button, IconButton } from "../parts/Button.tsx";
import { StateGlyph } from "../parts/State.tsx";
import styles from "./Toasts.module.css";
import { dismissToast, useToasts } from "./toasts.ts";

const GLYPHS = { done: "done", failed: "failed", info: "queued" } as const;

export function Toasts(): ReactNode {
  const toasts = useToasts();
  return (
    <div className={styles.list} role="status" aria-live="polite">
      {toasts.map((one) => (
        <div key={one.id} className={styles.toast}>
          <StateGlyph state={GLYPHS[one.kind]} size={16} />
          <div className={styles.text}>
            <p>{one.text}</p>
            {one.detail && <p className="quiet small">{one.detail}</p>}
          </div>
          {one.action && (
            <Button
              kind="quiet"
              onClick={() => {
                one.action?.run();
                dismissToast(one.id);
              }}
            >
              {one.action.text}
            </Button>
          )}
          <IconButton label="Dismiss" icon={<X size={14} />} onClick={() => dismissToast(one.id)} />
        </div>
      ))}
    </div>
  );
}
