import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Empty } from "../parts/Empty.tsx";
import { useCrumbs } from "./crumbs.ts";

export function NotFound(): ReactNode {
  useCrumbs([{ text: "Not found" }]);
  return (
    <Empty isPage title="Page not found">
      The address may be wrong or belong to a newer version of arclog. <Link to="/">Go to Home</Link>
    </Empty>
  );
}
