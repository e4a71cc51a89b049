import { useEffect, useRef, useState } from "react";
import { useSession } from "./session.ts";
import { EventStream, type StreamState } from "./stream.ts";

/**
 * Follows a stream while the component is shown. `after` is where it begins; a new `address` begins anew. After a sign-in it
 * goes on behind the last record that was passed on.
 */
export function useStream<T>(
  address: string | null,
  after: number,
  onRecords: (records: T[]) => void,
): { state: StreamState; reason: string } {
  const [state, setState] = useState<{ state: StreamState; reason: string }>({ state: "connecting", reason: "" });
  const session = useSession();
  const isOver = session.status !== "in" || session.expired !== "";
  const deliver = useRef(onRecords);
  deliver.current = onRecords;
  const place = useRef({ address, last: after });
  if (place.current.address !== address) place.current = { address, last: after };

  useEffect(() => {
    if (address === null || isOver) return;
    const at = place.current;
    const stream = new EventStream<T>({
      address,
      after: at.last,
      onRecords: (records) => deliver.current(records),
      onState: (now, reason) => setState({ state: now, reason }),
    });
    return () => {
      at.last = Math.max(at.last, stream.delivered);
      stream.close();
    };
  }, [address, isOver]);
  return state;
}
