// A real planner over a real database, as a user starts it.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** The repository's root. */
export const root = resolve(fileURLToPath(new URL(".", import.meta.url)), "../../..");

/** The command under test. */
export const program = process.env["MOEPLAN_BIN"] ?? join(root, "build-dev/bin/moeplan");

/** Runs the command and returns what it prints. */
export function moeplan(...args: string[]): string {
  return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], timeout: 300_000 });
}

/** A folder that `remove` takes away again. */
export function temporaryFolder(): { path: string; remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), "moeplan-web-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

export class Planner {
  private constructor(
    private process: ChildProcess,
    readonly db: string,
    readonly grpcAddress: string,
    readonly httpAddress: string,
    private readonly args: readonly string[],
  ) {}

  /** Where the dashboard is. */
  get url(): string {
    return `http://${this.httpAddress}/`;
  }

  static async start(db: string, ...args: string[]): Promise<Planner> {
    const { process, grpc, http } = await Planner.launch(db, "127.0.0.1:0", "127.0.0.1:0", args);
    return new Planner(process, db, grpc, http, args);
  }

  private static async launch(db: string, grpcWanted: string, httpWanted: string, args: readonly string[]) {
    const child = spawn(program, ["serve", "--db", db, "--grpc", grpcWanted, "--http", httpWanted, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let errors = "";
    child.stderr.on("data", (data: Buffer) => (errors += data.toString()));
    const line = await new Promise<string>((found, failed) => {
      createInterface(child.stdout).once("line", found);
      child.once("exit", (code) => failed(new Error(`moeplan serve ended with ${code}: ${errors}`)));
      child.once("error", failed);
    });
    const match = /gRPC on (\S+), HTTP on https?:\/\/(\S+)/.exec(line);
    if (match === null) throw new Error(`moeplan serve said: ${line}`);
    return { process: child, grpc: match[1]!, http: match[2]! };
  }

  /** Ends it; SIGKILL is how it goes away without a goodbye. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = new Promise((done) => this.process.once("exit", done));
    this.resume();
    this.process.kill(signal);
    await ended;
  }

  /** It hangs: connections are taken, and nothing is answered. */
  pause(): void {
    this.process.kill("SIGSTOP");
  }

  /** It goes on where it was. */
  resume(): void {
    this.process.kill("SIGCONT");
  }

  /** Starts it once more on the same addresses. */
  async restart(): Promise<void> {
    this.process = (await Planner.launch(this.db, this.grpcAddress, this.httpAddress, this.args)).process;
  }

  /** Calls a method as a program would. */
  async call<Answer = Record<string, unknown>>(method: string, request: unknown): Promise<Answer> {
    const response = await fetch(`${this.url}moeplan.v1.${method}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
    });
    const body = (await response.json()) as Answer;
    if (!response.ok) throw new Error(`${method}: ${JSON.stringify(body)}`);
    return body;
  }
}
