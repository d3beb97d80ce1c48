import { useEffect, useRef, useState } from "preact/hooks";

import { hasToken, useToken, wantToken } from "../api/client";

/** Asks for a token once the planner has refused a call without a good one; leaving it gives none. */
export function TokenDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [token, setToken] = useState("");
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="token-title" onClose={() => wantToken(false)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          useToken(token.trim());
        }}
      >
        <h2 id="token-title">This planner asks for a token</h2>
        <p>
          {hasToken() ? "It does not take the one it was shown. " : ""}Whoever runs it makes one with{" "}
          <code>moeplan token create --role plan</code>. It is kept until this tab is closed.
        </p>
        <label>
          Token
          <input type="password" autocomplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary">Go on</button>
      </form>
    </dialog>
  );
}
