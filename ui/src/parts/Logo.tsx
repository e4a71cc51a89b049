import type { ReactNode } from "react";

/** An arc that leads into a log: three entries, the newest of which it has just reached. */
export function Logo({ size = 20 }: { size?: number }): ReactNode {
  return (
    <svg width={size} height={size} viewBox="0 0 24 24" fill="none" aria-hidden="true">
      <path d="M3.2 19.5C3.2 10 8.2 4.6 16.2 4.6" stroke="var(--accent)" strokeWidth="2.6" strokeLinecap="round" />
      <circle cx="18.6" cy="4.6" r="2.6" fill="var(--accent)" />
      <path
        d="M10.5 12.2h10.3M10.5 16.2h10.3M10.5 20.2h6.2"
        stroke="currentColor"
        strokeWidth="2.2"
        strokeLinecap="round"
      />
    </svg>
  );
}
