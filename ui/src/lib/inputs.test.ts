import { describe, expect, it } from "vitest";
import { fieldsOf, givenBy, type InputField, initialText } from "./inputs.ts";

const INPUTS = {
  region: { type: "string", required: true, enum: ["north", "south"] },
  limit: { type: "integer", default: 100 },
  token: { type: "secret", required: true },
  rows: { type: "list" },
};

describe("fields of a run form", () => {
  const fields = fieldsOf({ limit: 100, note: "hello", deep: { a: 1 } }, INPUTS);
  const field = (name: string): InputField => {
    const found = fields.find((one) => one.name === name);
    if (!found) throw new Error(`there is no field ${name}`);
    return found;
  };

  it("come from declared inputs first, then from the workload", () => {
    expect(fields.map((one) => [one.name, one.kind])).toEqual([
      ["region", "choice"],
      ["limit", "number"],
      ["token", "secret"],
      ["rows", "json"],
      ["note", "text"],
      ["deep", "json"],
    ]);
  });

  it("send what was changed, and say what is missing or wrong", () => {
    expect(givenBy(field("limit"), initialText(field("limit")))).toEqual({ given: false, wrong: "" });
    expect(givenBy(field("limit"), "7")).toEqual({ given: true, value: 7, wrong: "" });
    expect(givenBy(field("limit"), "seven").wrong).toBe("Write a number.");
    expect(givenBy(field("token"), "").wrong).toBe("A value is needed.");
    expect(givenBy(field("token"), "007")).toEqual({ given: true, value: "007", wrong: "" });
    expect(givenBy(field("rows"), "")).toEqual({ given: false, wrong: "" });
    expect(givenBy(field("rows"), "[1]")).toEqual({ given: true, value: [1], wrong: "" });
    expect(givenBy(field("note"), "")).toEqual({ given: true, value: "", wrong: "" });
  });
});
