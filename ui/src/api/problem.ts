/** An answer of the server that is not a success: RFC 9457, or whatever came instead. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    /** the kind of error */
    readonly title: string,
    /** what, where, and what to do */
    readonly detail: string,
    readonly more: Record<string, unknown> = {},
  ) {
    super(detail);
    this.name = "Problem";
  }

  static async of(answer: Response): Promise<Problem> {
    let told: Record<string, unknown> = {};
    try {
      told = (await answer.json()) as Record<string, unknown>;
    } catch {
      // Not JSON: a proxy in between answered.
    }
    const { title, detail, status: _status, type: _type, ...more } = told;
    return new Problem(
      answer.status,
      typeof title === "string" ? title : "Unexpected",
      typeof detail === "string" && detail ? detail : `the server answered ${answer.status}`,
      more,
    );
  }
}

/** The server cannot be reached: it is stopped, starts, or the network is away. */
export class ServerAway extends Error {
  constructor() {
    super("The server cannot be reached. The page goes on by itself once it is back.");
    this.name = "ServerAway";
  }
}

/** What to tell somebody of any error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
