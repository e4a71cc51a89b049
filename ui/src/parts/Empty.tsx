import type { ReactNode } from "react";
import { CopyLine } from "./CopyLine.tsx";
import styles from "./Empty.module.css";

interface Props {
  title: string;
  children?: ReactNode;
  /** a command that leads on from here */
  command?: string;
  icon?: ReactNode;
  /** it is all that the page has */
  isPage?: boolean;
}

/** Nothing is here: what would be, and how to get there. */
export function Empty({ title, children, command, icon, isPage = false }: Props): ReactNode {
  return (
    <div className={styles.empty}>
      {icon}
      {isPage ? <h1 className={styles.title}>{title}</h1> : <p className={styles.title}>{title}</p>}
      {children && <div className={`${styles.text} quiet`}>{children}</div>}
      {command && <CopyLine text={command} />}
    </div>
  );
}
