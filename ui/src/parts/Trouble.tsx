import { RotateCw } from "lucide-react";
import { Component, type ReactNode } from "react";
import { messageOf, Problem, ServerAway } from "../api/problem.ts";
import { Button } from "./Button.tsx";
import styles from "./Trouble.module.css";

/** Something could not be loaded: what, why, and another try. */
export function Trouble({ error, retry, what }: { error: unknown; retry?: () => void; what: string }): ReactNode {
  const title =
    error instanceof ServerAway
      ? "The server cannot be reached"
      : error instanceof Problem && error.status === 404
        ? `${what} was not found`
        : error instanceof Problem && error.status === 403
          ? "You do not have access"
          : `${what} could not be loaded`;
  return (
    <div className={styles.trouble} role="alert">
      <p className={styles.title}>{title}</p>
      <p className="quiet">{messageOf(error)}</p>
      {retry && (
        <Button icon={<RotateCw size={14} />} onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

/** Keeps an error of one part from taking the whole page with it. */
export class Boundary extends Component<{ children: ReactNode; resetKey?: string }, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override componentDidUpdate(before: { resetKey?: string }): void {
    if (before.resetKey !== this.props.resetKey && this.state.error !== null) this.setState({ error: null });
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    return (
      <div className={styles.trouble} role="alert">
        <p className={styles.title}>This part of the page crashed</p>
        <p className="quiet">{messageOf(this.state.error)}</p>
        <p className="quiet small">This is a bug in arclog. The rest of the page still works, and no data was lost.</p>
        <Button icon={<RotateCw size={14} />} onClick={() => this.setState({ error: null })}>
          Reload this part
        </Button>
      </div>
    );
  }
}
