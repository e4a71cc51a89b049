/** What a step waits for, in a few words. */
import type { PlanGraph } from "../../lib/plan.ts";
import { exactText } from "../../lib/time.ts";
import type { StepWait } from "./moment.ts";

export function waitText(plan: PlanGraph | null, step: string, wait: StepWait): string {
  const task = plan?.steps.find((one) => one.name === step)?.tasks.find((one) => one.name === wait.task);
  const until = wait.until === null ? "" : `until ${exactText(wait.until).slice(11, 19)}`;
  if (wait.child || task?.kind === "playbook") return "for a child run";
  if (task?.kind === "approval") return "for approval";
  if (task?.kind !== "wait") return until;
  const signal = task.config.signal;
  return typeof signal === "string" ? `for ${signal}` : until;
}
