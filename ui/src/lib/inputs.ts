/** Fields of a run form: one for each declared input, and one for each value of the workload that is not declared. */

export interface InputField {
  name: string;
  kind: "text" | "secret" | "boolean" | "choice" | "json" | "number";
  isRequired: boolean;
  description: string;
  /** of a choice */
  options: string[];
  /** what stands in the playbook; undefined: nothing */
  initial: unknown;
  placeholder: string;
}

interface Declaration {
  type?: string;
  required?: boolean;
  enum?: unknown[];
  description?: string;
}

const KINDS: Record<string, InputField["kind"]> = {
  string: "text",
  date: "text",
  datetime: "text",
  secret: "secret",
  boolean: "boolean",
  integer: "number",
  number: "number",
};
const PLACEHOLDERS: Record<string, string> = { date: "2027-01-31", datetime: "2027-01-31T09:00:00Z" };

export function fieldsOf(workload: Record<string, unknown>, inputs: Record<string, unknown>): InputField[] {
  const declared = Object.entries(inputs).map(([name, raw]): InputField => {
    const { type = "any", required = false, enum: choices, description = "" } = raw as Declaration;
    const texts = choices?.every((one) => typeof one === "string") ? (choices as string[]) : [];
    return {
      name,
      kind: texts.length ? "choice" : (KINDS[type] ?? "json"),
      isRequired: required,
      description,
      options: texts,
      initial: workload[name] ?? undefined,
      placeholder: PLACEHOLDERS[type] ?? "",
    };
  });
  const others = Object.entries(workload)
    .filter(([name]) => !(name in inputs))
    .map(([name, value]): InputField => {
      const kind =
        typeof value === "string"
          ? "text"
          : typeof value === "boolean"
            ? "boolean"
            : typeof value === "number"
              ? "number"
              : "json";
      return { name, kind, isRequired: false, description: "", options: [], initial: value, placeholder: "" };
    });
  return [...declared, ...others];
}

/** What stands in a field before somebody types. */
export function initialText(field: InputField): string {
  if (field.initial === undefined) return field.kind === "boolean" ? "false" : "";
  return typeof field.initial === "string" ? field.initial : JSON.stringify(field.initial, null, 1);
}

/** The value of a field: what to send, nothing (`given` is false), or what is wrong with it. */
export function givenBy(field: InputField, text: string): { given: boolean; value?: unknown; wrong: string } {
  if (text === initialText(field) && (field.initial !== undefined || !field.isRequired)) {
    return { given: false, wrong: "" };
  }
  if (text === "") {
    return field.isRequired
      ? { given: false, wrong: "A value is needed." }
      : { given: field.kind === "text", value: "", wrong: "" };
  }
  if (field.kind === "text" || field.kind === "secret" || field.kind === "choice") {
    return { given: true, value: text, wrong: "" };
  }
  try {
    const value: unknown = JSON.parse(text);
    if (field.kind !== "number" || typeof value === "number") return { given: true, value, wrong: "" };
    return { given: false, wrong: "Write a number." };
  } catch {
    const wrong =
      field.kind === "number" ? "Write a number." : "Write a JSON value: a list, an object, a number or a quoted text.";
    return { given: false, wrong };
  }
}
