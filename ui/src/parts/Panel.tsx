import { type ReactNode, useId } from "react";
import styles from "./Panel.module.css";

interface Props {
  title: ReactNode;
  /** beside the title */
  note?: ReactNode;
  /** at the end of the title's line */
  actions?: ReactNode;
  children: ReactNode;
}

/** A part of a page with a title. */
export function Panel({ title, note, actions, children }: Props): ReactNode {
  const id = useId();
  return (
    <section className={styles.panel} aria-labelledby={id}>
      <header className={styles.head}>
        <h2 id={id}>{title}</h2>
        {note && <span className={`${styles.note} quiet small`}>{note}</span>}
        {actions && <div className={styles.actions}>{actions}</div>}
      </header>
      {children}
    </section>
  );
}
