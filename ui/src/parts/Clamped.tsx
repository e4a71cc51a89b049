import { type ReactNode, useEffect, useRef, useState } from "react";
import styles from "./Clamped.module.css";

/** A text of any length: a few lines of it, and the rest on demand. */
export function Clamped({ children }: { children: ReactNode }): ReactNode {
  const box = useRef<HTMLDivElement>(null);
  const [isLong, setIsLong] = useState(false);
  const [isOpen, setIsOpen] = useState(false);
  useEffect(() => {
    const text = box.current;
    if (!text) return;
    const look = (): void => setIsLong(text.scrollHeight > text.clientHeight + 1);
    const watcher = new ResizeObserver(look);
    watcher.observe(text);
    look();
    return () => watcher.disconnect();
  }, []);
  return (
    <>
      <div ref={box} className={isOpen ? styles.open : styles.clamped}>
        {children}
      </div>
      {(isLong || isOpen) && (
        <button type="button" className={styles.more} aria-expanded={isOpen} onClick={() => setIsOpen(!isOpen)}>
          {isOpen ? "Show less" : "Show all"}
        </button>
      )}
    </>
  );
}
