import { expect, it } from "vitest";
import { datasetsOf } from "./datasets.ts";

it("lists what each task read and wrote once, with all rows together", () => {
  const job = { name: "shop/orders.load.copy" };
  const orders = { namespace: "postgres://db:5432", name: "shop.public.orders" };
  const fields = { total: { inputFields: [{ name: "orders", field: "price" }] } };
  const file = { namespace: "file", name: "/data/out.csv", facets: { columnLineage: { fields } } };
  const done = { ...file, outputFacets: { outputStatistics: { rowCount: 1200 } } };
  const events = [
    { job: { name: "shop/orders" }, inputs: [], outputs: [] },
    { job, inputs: [orders], outputs: [file] },
    { job, inputs: [orders], outputs: [done] },
    { job, inputs: [orders], outputs: [done] },
  ];
  expect(datasetsOf(events, "shop/orders")).toMatchObject([
    { way: "read", name: "shop.public.orders", step: "load", task: "copy", amount: "", columns: [] },
    { way: "wrote", name: "/data/out.csv", amount: "2,400 rows", columns: ["total ← orders.price"] },
  ]);
});
