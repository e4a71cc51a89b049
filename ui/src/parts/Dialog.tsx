import { X } from "lucide-react";
import { type ReactNode, useEffect, useId, useRef } from "react";
import { IconButton } from "./Button.tsx";
import styles from "./Dialog.module.css";

interface Props {
  title: string;
  onClose: () => void;
  /** one that must be answered has no way around it */
  closable?: boolean;
  children: ReactNode;
  footer?: ReactNode;
  wide?: boolean;
}

/** A question that stands before everything else. The browser keeps the focus inside. */
export function Dialog({ title, onClose, closable = true, children, footer, wide = false }: Props): ReactNode {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={ref}
      className={`${styles.dialog} ${wide ? styles.wide : ""}`}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        if (closable) onClose();
      }}
      onPointerDown={(event) => {
        if (closable && event.target === ref.current) onClose();
      }}
    >
      <div className={styles.inside}>
        <header className={styles.head}>
          <h2 id={id}>{title}</h2>
          {closable && <IconButton label="Close" icon={<X size={16} />} onClick={onClose} />}
        </header>
        <div className={styles.body}>{children}</div>
        {footer && <footer className={styles.foot}>{footer}</footer>}
      </div>
    </dialog>
  );
}
