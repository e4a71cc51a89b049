import { KeyRound, LogIn } from "lucide-react";
import { type FormEvent, type ReactNode, useState } from "react";
import { messageOf } from "../api/problem.ts";
import { issuerAddress, signIn } from "../api/session.ts";
import type { SignIn as Ways } from "../api/types.ts";
import { Button } from "../parts/Button.tsx";
import { Field } from "../parts/Field.tsx";
import { Logo } from "../parts/Logo.tsx";
import styles from "./SignIn.module.css";

/** The form: an API key, or the way to the issuer. The key is sent once and kept nowhere. */
export function SignInForm({ ways, reason }: { ways: Ways; reason: string }): ReactNode {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState(reason);
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      await signIn(key);
    } catch (error) {
      setProblem(messageOf(error));
      setBusy(false);
    }
  };
  return (
    <div className={styles.ways}>
      {ways.methods.includes("oidc") && (
        <a className={styles.issuer} href={issuerAddress()}>
          <LogIn size={16} aria-hidden="true" />
          Sign in at {ways.issuer}
        </a>
      )}
      {ways.methods.includes("oidc") && ways.methods.includes("key") && <div className={styles.or}>or</div>}
      {ways.methods.includes("key") && (
        <form className={styles.form} onSubmit={(event) => void submit(event)}>
          <Field
            label="API key"
            type="password"
            name="key"
            placeholder="ark_…"
            required
            autoFocus
            value={key}
            onChange={(event) => setKey(event.target.value)}
            hint={
              <>
                An administrator can create one:
                <br />
                <code>arclog key create --name me --role operator</code>
              </>
            }
          />
          <Button kind="main" type="submit" icon={<KeyRound size={14} />} disabled={busy || !key.trim()}>
            {busy ? "Signing in …" : "Sign in"}
          </Button>
        </form>
      )}
      {problem && (
        <p className={styles.problem} role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

/** The whole page, for somebody who is not signed in yet. */
export function SignInPage({ ways, reason }: { ways: Ways; reason: string }): ReactNode {
  return (
    <main className={styles.page}>
      <div className={styles.card}>
        <div className={styles.brand}>
          <Logo size={28} />
          <h1>arclog</h1>
        </div>
        <SignInForm ways={ways} reason={reason} />
      </div>
    </main>
  );
}
