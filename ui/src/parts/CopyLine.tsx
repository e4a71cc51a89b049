import { Check, Copy } from "lucide-react";
import { type ReactNode, useState } from "react";
import { copyText } from "../lib/clipboard.ts";
import { IconButton } from "./Button.tsx";
import styles from "./CopyLine.module.css";

/** A piece of text for a terminal or a program, to be taken along. */
export function CopyLine({ text, wrap = false }: { text: string; wrap?: boolean }): ReactNode {
  return (
    <div className={styles.line}>
      <pre className={wrap ? styles.wrap : styles.text} tabIndex={wrap ? undefined : 0}>
        {text}
      </pre>
      <CopyButton text={text} label="Copy" />
    </div>
  );
}

export function CopyButton({ text, label }: { text: string; label: string }): ReactNode {
  const [done, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    setDone(await copyText(text));
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <IconButton
      label={done ? "Copied" : label}
      icon={done ? <Check size={14} /> : <Copy size={14} />}
      onClick={() => void copy()}
    />
  );
}
