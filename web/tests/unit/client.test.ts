import { afterEach, describe, expect, it, vi } from "vitest";

import { call, callAll, CallError, callMs, currentConnection, currentTokenState, useToken, wantToken } from "../../src/api/client";

const answering = (body: string, status = 200): void => void vi.stubGlobal("fetch", async () => new Response(body, { status }));

/** Never answers, as a process that is stopped; ends with the signal's reason, as fetch does. */
const hanging = (): void =>
  void vi.stubGlobal("fetch", (_: string, { signal }: RequestInit) => new Promise((_found, failed) => {
    signal!.addEventListener("abort", () => failed(signal!.reason as Error));
  }));

async function refused(promise: Promise<unknown>): Promise<CallError> {
  const problem = await promise.then(() => null, (error: unknown) => error);
  expect(problem).toBeInstanceOf(CallError);
  return problem as CallError;
}

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

describe("a call", () => {
  it("gives the planner's answer", async () => {
    answering(`{"profiles": []}`);
    expect(await call("A/B", {})).toEqual({ profiles: [] });
    expect(currentConnection().awaySince).toBeNull();
  });

  it.each([["cut", `{"profiles": [`, 200], ["a page of a proxy", "<html>", 200], ["no object", `"ok"`, 200], ["nothing", "", 200],
    ["a proxy's 502", "<html>", 502], ["a proxy's 503", "", 503], ["a proxy's 504 in JSON", `{"error": "timeout"}`, 504]])(
    "is unreachable where what comes is %s", async (_, body, status) => {
      answering(body, status);
      expect((await refused(call("A/B", {}))).code).toBe("UNREACHABLE");
      expect(currentConnection().awaySince).not.toBeNull();
    });

  it("tells what the planner refuses, and with which field", async () => {
    answering(`{"code": "INVALID_ARGUMENT", "message": "no", "field": "budgetS", "found": "0", "expected": "above 0"}`, 400);
    expect(await refused(call("A/B", {}))).toMatchObject({ code: "INVALID_ARGUMENT", message: "no", field: "budgetS", found: "0" });
    expect(currentConnection().awaySince).toBeNull();
    answering("", 404);
    expect(await refused(call("A/B", {}))).toMatchObject({ code: "HTTP 404", message: "HTTP 404" });
  });

  it("is unreachable once its time is over", async () => {
    hanging();
    const limit = new AbortController();
    const timeout = vi.spyOn(AbortSignal, "timeout").mockReturnValue(limit.signal);
    const asked = refused(call("A/B", {}, new AbortController().signal));
    limit.abort(new DOMException("late", "TimeoutError"));
    expect(await asked).toMatchObject({ code: "UNREACHABLE", message: "The planner did not answer within 65 s." });
    expect(timeout).toHaveBeenCalledWith(callMs);
  });

  it("that is called off is no error of the planner's", async () => {
    answering("{}");
    await call("A/B", {});
    hanging();
    const caller = new AbortController();
    const asked = call("A/B", {}, caller.signal).catch((problem: unknown) => problem);
    caller.abort();
    expect(await asked).toMatchObject({ name: "AbortError" });
    expect(currentConnection().awaySince).toBeNull();
  });
});

describe("all pages", () => {
  it("are asked for as whole ones, the empty ones among them, until there are enough", async () => {
    const pages: Record<string, { items: number[]; nextPageToken: string }> = {
      "": { items: [1, 2], nextPageToken: "a" }, a: { items: [], nextPageToken: "b" }, b: { items: [3, 4], nextPageToken: "c" },
    };
    const sizes: number[] = [];
    vi.stubGlobal("fetch", async (_: string, { body }: RequestInit) => {
      const { pageSize, pageToken } = JSON.parse(body as string) as { pageSize: number; pageToken: string };
      sizes.push(pageSize);
      return new Response(JSON.stringify(pages[pageToken]));
    });
    expect(await callAll("A/B", {}, (answer: { items: number[]; nextPageToken: string }) => answer.items, 3)).toEqual([1, 2, 3]);
    expect(sizes).toEqual([3, 3, 3]);
  });
});

describe("a token", () => {
  const unauthenticated = `{"code": "UNAUTHENTICATED", "message": "a token"}`;

  it("is wanted again after a refusal, and until then not asked for", async () => {
    answering(unauthenticated, 401);
    await refused(call("A/B", {}));
    expect(currentTokenState()).toMatchObject({ wanted: true, refused: true });
    wantToken(false);
    expect(currentTokenState()).toMatchObject({ wanted: false, refused: true });
    await refused(call("A/B", {}));
    expect(currentTokenState().wanted).toBe(true);
    const { given } = currentTokenState();
    useToken("good");
    expect(currentTokenState()).toEqual({ wanted: false, refused: false, given: given + 1 });
  });

  it("is not wanted for a call that was sent before it was given", async () => {
    vi.stubGlobal("fetch", async () => {
      useToken("newer");
      return new Response(unauthenticated, { status: 401 });
    });
    await refused(call("A/B", {}));
    expect(currentTokenState().wanted).toBe(false);
  });

  it("is not wanted again for a call that was sent before the dialog was left", async () => {
    let answer: (response: Response) => void = () => undefined;
    vi.stubGlobal("fetch", () => new Promise<Response>((found) => { answer = found; }));
    const early = refused(call("A/B", {}));
    wantToken(true);
    wantToken(false);
    answer(new Response(unauthenticated, { status: 401 }));
    await early;
    expect(currentTokenState()).toMatchObject({ wanted: false, refused: true });
  });
});
