// First: it says in which order the layers of all style sheets go.
import "./styles/index.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { queries } from "./api/queries.ts";
import { loadSession, watchOwner } from "./api/session.ts";
import { Gate } from "./app/Gate.tsx";
import { Boundary } from "./parts/Trouble.tsx";

// What one user was shown is not for the next.
watchOwner(
  () => queries.clear(),
  () => void queries.invalidateQueries(),
);

// Asked before anything is drawn: everything else waits for the answer.
void loadSession(signInProblem());

/** A sign-in at the issuer that failed comes back with the reason in the address. */
function signInProblem(): string {
  const address = new URL(window.location.href);
  const reason = address.searchParams.get("sign_in") ?? "";
  if (reason) {
    address.searchParams.delete("sign_in");
    window.history.replaceState(null, "", address);
  }
  return reason;
}

const place = document.getElementById("root");
if (place) {
  createRoot(place).render(
    <StrictMode>
      <Boundary>
        <QueryClientProvider client={queries}>
          <Gate />
        </QueryClientProvider>
      </Boundary>
    </StrictMode>,
  );
}
