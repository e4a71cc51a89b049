/** "1,234". Not by the browser's formatter, which takes longer to make than all the rest of a row. */
export function countText(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d)(?<!\.\d*))/g, ",");
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${countText(count)} ${count === 1 ? one : many}`;
}

/** "97 %", "99.7 %": never 100 % when something is missing. */
export function shareText(part: number, whole: number): string {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  if (part < whole && share > 99.9) return "99.9 %";
  return `${share >= 99 && share < 100 ? share.toFixed(1) : Math.round(share)} %`;
}
