import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { Empty } from "../parts/Empty.tsx";
import { useCrumbs } from "./crumbs.ts";

export function NotFound(): ReactNode {
  useCrumbs([{ text: "Not found" }]);
  return (
    <Empty isPage title="There is no such page">
      The address may be wrong, or of a newer arclog. <Link to="/">Go home</Link>
    </Empty>
  );
}
