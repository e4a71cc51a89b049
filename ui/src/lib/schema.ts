/** Which keys a JSON Schema allows at a place in a YAML text, by the lines above it. */

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  description?: string;
}

export interface Key {
  name: string;
  description: string;
}

/** The keys that may stand in `line`, below `before`. */
export function keysAt(schema: Schema, before: readonly string[], line: string): Key[] {
  const path = pathOf(before, indentOf(line));
  let places = spread(schema, schema);
  for (const name of path) {
    places = places.flatMap((place) => {
      const next =
        place.properties?.[name] ?? (isSchema(place.additionalProperties) ? place.additionalProperties : null);
      return next ? spread(next, schema).flatMap((one) => [one, ...listed(one, schema)]) : [];
    });
  }
  const found = new Map<string, Key>();
  for (const place of places) {
    for (const [name, about] of Object.entries(place.properties ?? {})) {
      if (!found.has(name)) found.set(name, { name, description: about.description ?? "" });
    }
  }
  return [...found.values()];
}

/** A list's items count as the list's own keys: `- step: x`. */
function listed(place: Schema, root: Schema): Schema[] {
  return isSchema(place.items) ? spread(place.items, root) : [];
}

/** The keys that a line with this indent is below, outermost first. */
function pathOf(before: readonly string[], indent: number): string[] {
  const path: string[] = [];
  let limit = indent;
  for (let at = before.length - 1; at >= 0 && limit > 0; at--) {
    const text = before[at] ?? "";
    const [, lead = "", name] = /^([\s-]*)([\w-]+)\s*:/.exec(text) ?? [];
    if (!name || lead.length >= limit) continue;
    path.unshift(name);
    limit = lead.length;
    // A key behind a dash belongs to what the list is of.
    if (lead.includes("-")) limit = lead.indexOf("-") + 1;
  }
  return path;
}

function indentOf(line: string): number {
  return /^[\s-]*/.exec(line)?.[0].length ?? 0;
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null;
}

/** A schema with its references and alternatives laid out. */
function spread(schema: Schema, root: Schema, depth = 0): Schema[] {
  if (depth > 12) return [];
  if (schema.$ref) {
    const name = schema.$ref.split("/").at(-1) ?? "";
    const target = root.$defs?.[name];
    return target ? spread(target, root, depth + 1) : [];
  }
  const others = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [schema, ...others.flatMap((one) => spread(one, root, depth + 1))];
}
