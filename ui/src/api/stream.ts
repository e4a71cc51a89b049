/** Server-sent events by `fetch`: every record once and in order, across restarts of the server, sleeps and sign-ins. */
import { access, request } from "./client.ts";
import { Problem } from "./problem.ts";

export interface Frame {
  /** of the last record; '' when it does not carry one */
  id: string;
  event: string;
  data: string;
}

/** Splits a stream of text into frames, wherever the network cut it. */
export class FrameParser {
  #rest = "";

  push(text: string): Frame[] {
    const lines = (this.#rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.#rest = lines.pop() ?? "";
    return lines.map(frameOf).filter((frame) => frame !== null);
  }
}

function frameOf(block: string): Frame | null {
  const frame: Frame = { id: "", event: "message", data: "" };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    if (line.startsWith(":")) continue;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") frame.id = value;
    else if (name === "event") frame.event = value;
    else if (name === "data") data.push(value);
  }
  frame.data = data.join("\n");
  return data.length ? frame : null;
}

/**
 * Passes records on in whole groups. The server marks the last record of a group with its id, so that who is cut off in the
 * middle gets the group again: what has no id yet waits, and what was passed on before is dropped.
 */
export class Groups<T> {
  #waiting: T[] = [];
  last: number;

  constructor(after: number) {
    this.last = after;
  }

  push(frame: Frame, record: T): T[] {
    this.#waiting.push(record);
    if (!frame.id) return [];
    const whole = this.#waiting;
    this.#waiting = [];
    const id = Number(frame.id);
    if (!(id > this.last)) return [];
    this.last = id;
    return whole;
  }

  /** The connection ended: what was not marked comes again. */
  cut(): void {
    this.#waiting = [];
  }
}

export type StreamState = "connecting" | "live" | "ended" | "away" | "denied";

export interface StreamOptions<T> {
  /** of the stream, without the cursor */
  address: string;
  /** only what comes behind this id */
  after?: number;
  /** several records at a time: at most one call for each frame of the screen */
  onRecords: (records: T[]) => void;
  onState?: (state: StreamState, reason: string) => void;
}

const FIRST_PAUSE_MS = 300;
const LONGEST_PAUSE_MS = 10_000;
/** A page that nobody looks at lets its stream go after this long: a browser has only a few connections to one server. */
const HIDDEN_MS = 30_000;

/** Follows a stream until it ends or is closed. */
export class EventStream<T> {
  readonly #options: StreamOptions<T>;
  readonly #groups: Groups<T>;
  #records: T[] = [];
  #frame = 0;
  #abort = new AbortController();
  #closed = false;
  #over = false;
  #running = false;
  #pause = FIRST_PAUSE_MS;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #rest: ReturnType<typeof setTimeout> | undefined;

  constructor(options: StreamOptions<T>) {
    this.#options = options;
    this.#groups = new Groups<T>(options.after ?? 0);
    this.delivered = this.#groups.last;
    document.addEventListener("visibilitychange", this.#onVisibility);
    void this.#run();
  }

  /** The id of the last record that was handed to `onRecords`. */
  delivered: number;

  close(): void {
    this.#closed = true;
    document.removeEventListener("visibilitychange", this.#onVisibility);
    clearTimeout(this.#retry);
    clearTimeout(this.#rest);
    cancelAnimationFrame(this.#frame);
    this.#abort.abort();
  }

  async #run(): Promise<void> {
    this.#running = true;
    try {
      while (!this.#closed && !this.#over) {
        this.#say("connecting");
        let received = false;
        try {
          received = await this.#follow();
        } catch (error) {
          if (this.#closed) return;
          if (error instanceof Problem && [401, 403, 404].includes(error.status)) {
            this.#say("denied", error.detail);
            this.#over = true;
            return;
          }
        }
        this.#groups.cut();
        if (this.#over) this.#say("ended");
        if (this.#closed || this.#over) return;
        // The server ended the stream in order after it sent something: the next request says whether there is more.
        if (received && !document.hidden) continue;
        this.#say("away");
        if (document.hidden) return; // #onVisibility goes on
        await this.#wait();
      }
    } finally {
      this.#running = false;
    }
  }

  /** Reads until the server ends the stream; whether it sent anything. Throws when the connection breaks. */
  async #follow(): Promise<boolean> {
    this.#abort = new AbortController();
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.#groups.last) headers["last-event-id"] = String(this.#groups.last);
    const answer = await request(this.#options.address, {
      headers,
      signal: this.#abort.signal,
      credentials: "same-origin",
      cache: "no-store",
    });
    if (answer.status === 204 || !answer.body) {
      this.#over = true;
      return false;
    }
    this.#say("live");
    let received = false;
    const parser = new FrameParser();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return received;
      this.#pause = FIRST_PAUSE_MS;
      for (const frame of parser.push(value)) {
        if (frame.event === "denied") {
          const problem = new Problem(401, "Unauthenticated", "the session has ended");
          access.onUnauthenticated(problem);
          throw problem;
        }
        received = true;
        this.#records.push(...this.#groups.push(frame, JSON.parse(frame.data) as T));
      }
      if (this.#records.length) this.#deliver();
    }
  }

  #deliver(): void {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      const records = this.#records;
      this.#records = [];
      if (!records.length || this.#closed) return;
      this.delivered = this.#groups.last;
      this.#options.onRecords(records);
    });
  }

  #wait(): Promise<void> {
    const pause = this.#pause * (0.75 + Math.random() / 2);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
    return new Promise((resolve) => {
      this.#retry = setTimeout(resolve, pause);
    });
  }

  readonly #onVisibility = (): void => {
    clearTimeout(this.#rest);
    if (document.hidden) this.#rest = setTimeout(() => this.#abort.abort(), HIDDEN_MS);
    else if (!this.#running && !this.#closed && !this.#over) void this.#run();
  };

  #say(state: StreamState, reason = ""): void {
    if (!this.#closed) this.#options.onState?.(state, reason);
  }
}
