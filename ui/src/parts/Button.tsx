import type { ComponentProps, ReactNode } from "react";
import { toast } from "../app/toasts.ts";
import styles from "./Button.module.css";

interface Look {
  kind?: "plain" | "main" | "quiet" | "danger";
  icon?: ReactNode;
  /** why it cannot be used: it stays in reach, and says so when it is tried */
  denied?: string;
}

type Props = Omit<ComponentProps<"button">, "className"> & Look;

export function Button({ kind = "plain", icon, denied = "", children, onClick, ...rest }: Props): ReactNode {
  return (
    <button
      type="button"
      {...rest}
      className={`${styles.button} ${styles[kind]}`}
      aria-disabled={denied ? true : undefined}
      title={denied || rest.title}
      onClick={denied ? () => toast({ kind: "info", text: denied }) : onClick}
    >
      {icon}
      {children}
    </button>
  );
}

/** A button without words: its name is for screen readers, and shown as a hint. */
export function IconButton({ label, icon, denied = "", onClick, ...rest }: Props & { label: string }): ReactNode {
  return (
    <button
      type="button"
      {...rest}
      className={`${styles.button} ${styles.icon}`}
      aria-label={label}
      title={denied || label}
      aria-disabled={denied ? true : undefined}
      onClick={denied ? () => toast({ kind: "info", text: denied }) : onClick}
    >
      {icon}
    </button>
  );
}
