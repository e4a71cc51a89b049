import { describe, expect, it } from "vitest";
import { flagsOf, renamedOf, workloadOf } from "./assignments.ts";

describe("assignments", () => {
  it("are nested by dots, and their values are JSON or text", () => {
    expect(workloadOf("limit=100\nuser.name = Ada\nuser.ids=[1, 2]\n\n")).toEqual({
      values: { limit: 100, user: { name: "Ada", ids: [1, 2] } },
      wrong: "",
    });
    expect(flagsOf("--set", " limit = 100\n")).toEqual(["--set", "limit=100"]);
  });

  it("are refused with the line that is wrong", () => {
    expect(workloadOf("limit").wrong).toContain('"limit" is not PATH=VALUE');
    expect(workloadOf("a..b=1").wrong).toContain("PATH=VALUE");
    expect(workloadOf("a=1\na.b=2").wrong).toContain("inside a value");
    expect(workloadOf("a=1\na=2").wrong).toBe("a is set twice");
    expect(renamedOf("fetch").wrong).toContain("OLD=NEW");
    expect(renamedOf("fetch=load")).toEqual({ values: { fetch: "load" }, wrong: "" });
  });

  it("may have any name", () => {
    expect(JSON.stringify(workloadOf("__proto__.x=1").values)).toBe('{"__proto__":{"x":1}}');
  });
});
