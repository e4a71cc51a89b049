import { RouterProvider } from "@tanstack/react-router";
import { type ReactNode, useEffect } from "react";
import { loadSession, useSession } from "../api/session.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { Trouble } from "../parts/Trouble.tsx";
import { router } from "./router.tsx";
import { SignInForm, SignInPage } from "./SignIn.tsx";

const ASK_AGAIN_MS = 2000;

/** Lets in who may come in. When a session ends, the page stays as it is, under a question to sign in again. */
export function Gate(): ReactNode {
  const session = useSession();
  const unknown = session.status === "unknown";
  useEffect(() => {
    if (!unknown) return;
    const timer = setInterval(() => void loadSession(), ASK_AGAIN_MS);
    return () => clearInterval(timer);
  }, [unknown]);
  if (session.status === "loading") return null;
  if (session.status === "unknown") {
    return <Trouble what="The console" error={new Error(session.reason)} retry={() => void loadSession()} />;
  }
  if (session.status === "out") return <SignInPage ways={session.ways} reason={session.reason} />;
  return (
    <>
      {/* What one user was shown is not for the next: with another owner, everything begins anew. */}
      <RouterProvider key={`${session.me.tenant}/${session.me.name}`} router={router} />
      {session.expired && (
        <Dialog title="Sign in again" onClose={() => {}} closable={false}>
          <p>Your session has expired. Sign in again to continue where you were.</p>
          <SignInForm ways={session.ways} reason="" />
        </Dialog>
      )}
    </>
  );
}
