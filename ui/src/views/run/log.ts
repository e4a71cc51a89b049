/** A run's log in outline: what each event is about, without payloads. The server sends it in parts (`server/outline.py`). */

export interface Part {
  first: number;
  at: string;
  kinds: [type: string, step: string, task: string, attempt: number][];
  what: number[];
  item: (number | string)[];
  run: number[];
  ms: number[];
  more: Record<string, More>;
}

/** The few facts of a payload that an outline keeps. */
export interface More {
  token?: number;
  tokens?: number[];
  total?: number;
  selected?: { step: string; arc?: number; token?: number }[];
  action?: { do?: string };
  allowed?: boolean;
  signal?: string;
  /** the task waits: for a time (`until`, microseconds since 1970), a called run (`child`), a signal or an approval */
  waits?: boolean;
  until?: number;
  child?: string;
}

export interface Kind {
  type: string;
  step: string;
  task: string;
  attempt: number;
}

/** An event as lists show it. */
export interface Line extends Kind {
  seq: number;
  run: number;
  /** '' outside loops */
  item: string;
  /** milliseconds since 1970 */
  at: number;
}

export const NO_MORE: More = {};

/** Bookkeeping between what people look for: left out of the compact list. */
const BOOKKEEPING =
  /^(command\.|token\.|workflow\.|policy\.|next\.|step\.scheduled$|task\.started$|task\.attempt\.started$|loop\.(iteration\.)?started$|playbook\.(execution\.requested|request\.evaluated)$)/;

export function isBookkeeping(type: string): boolean {
  return BOOKKEEPING.test(type);
}

/** All events so far; `length` is the seq of the last one. */
export class RunLog {
  readonly kinds: Kind[] = [];
  readonly what: number[] = [];
  readonly item: (number | string)[] = [];
  readonly run: number[] = [];
  readonly at: number[] = [];
  readonly more = new Map<number, More>();
  #known = new Map<string, number>();

  get length(): number {
    return this.what.length;
  }

  append(part: Part): void {
    const kinds = part.kinds.map((row) => this.#kind(row));
    const runs: number[] = [];
    for (let at = 0; at < part.run.length; at += 2) {
      for (let left = part.run[at + 1] ?? 0; left > 0; left--) runs.push(part.run[at] ?? 0);
    }
    let now = Date.parse(part.at);
    part.what.forEach((what, index) => {
      now += part.ms[index] ?? 0;
      if (part.first + index !== this.length + 1) return; // it is known already
      this.what.push(kinds[what] ?? 0);
      this.item.push(part.item[index] ?? -1);
      this.run.push(runs[index] ?? 0);
      this.at.push(now);
    });
    for (const [seq, more] of Object.entries(part.more)) this.more.set(Number(seq), more);
  }

  kindOf(seq: number): Kind {
    return this.kinds[this.what[seq - 1] ?? -1] ?? { type: "", step: "", task: "", attempt: 0 };
  }

  itemOf(seq: number): string {
    const item = this.item[seq - 1] ?? -1;
    return item === -1 ? "" : String(item);
  }

  line(seq: number): Line {
    const kind = this.kindOf(seq);
    return { ...kind, seq, run: this.run[seq - 1] ?? 0, item: this.itemOf(seq), at: this.at[seq - 1] ?? 0 };
  }

  /** The first and the last event of a span of time; null when there is none in it. */
  within(from: number, to: number): [number, number] | null {
    let first = 0;
    let last = 0;
    // Clocks of several machines differ: times are not always in order.
    this.at.forEach((at, index) => {
      if (at < from || at > to) return;
      first ||= index + 1;
      last = index + 1;
    });
    return first ? [first, last] : null;
  }

  #kind([type, step, task, attempt]: Part["kinds"][number]): number {
    const key = JSON.stringify([type, step, task, attempt]);
    let known = this.#known.get(key);
    if (known === undefined) {
      known = this.kinds.push({ type, step, task, attempt }) - 1;
      this.#known.set(key, known);
    }
    return known;
  }
}
