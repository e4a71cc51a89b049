import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import styles from "./Popover.module.css";

interface Props {
  /** the button; it gets `aria-expanded` and opens */
  trigger: (props: {
    onClick: () => void;
    "aria-expanded": boolean;
    "aria-controls": string;
    "aria-haspopup": "dialog";
  }) => ReactNode;
  label: string;
  align?: "start" | "end";
  children: (close: () => void) => ReactNode;
}

/** Something small that opens beside its button, and closes by itself when one goes elsewhere. */
export function Popover({ trigger, label, align = "end", children }: Props): ReactNode {
  const [open, setOpen] = useState(false);
  const id = useId();
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event): void => {
      if (event.target instanceof Node && !root.current?.contains(event.target)) setOpen(false);
    };
    const onEscape = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      setOpen(false);
      root.current?.querySelector<HTMLElement>("[aria-expanded]")?.focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    document.addEventListener("keydown", onEscape, true);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
      document.removeEventListener("keydown", onEscape, true);
    };
  }, [open]);
  return (
    <div className={styles.root} ref={root}>
      {trigger({
        onClick: () => setOpen(!open),
        "aria-expanded": open,
        "aria-controls": id,
        "aria-haspopup": "dialog",
      })}
      {open && (
        <div id={id} role="dialog" aria-label={label} className={`${styles.box} ${styles[align]}`}>
          {children(() => setOpen(false))}
        </div>
      )}
    </div>
  );
}
